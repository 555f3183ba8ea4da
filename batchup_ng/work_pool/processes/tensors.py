"""How PyTorch's tensors cross between processes: as arrays do, their bytes out of band.

A tensor is pickled as the array of its bytes with dtype, shape and strides, in either direction. So its memory is
shared by all workers, or lies in the slot of a batch, as an array's does; of a slice only its own elements travel.
"""

from __future__ import annotations

from typing import Any

import cloudpickle

from ... import tensors
from ...errors import CannotTravel


class TensorPickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no annotations
    """Pickles any value, tensors by their memory."""

    def reducer_override(self, obj: Any) -> Any:
        if tensors.is_tensor(obj):
            return reduced(obj)
        if tensors.is_quantized(obj):
            raise CannotTravel(f"a quantized tensor ({obj.dtype}) cannot be sent; send what tensor.dequantize() gives")
        return super().reducer_override(obj)


def reduced(tensor: Any) -> Any:
    """Return how a plain tensor is made again."""
    if not tensors.is_dense(tensor):
        tensor = tensor.clone().resolve_conj().resolve_neg()
    memory = tensors.bytes_of(tensor)
    return tensors.over, (memory, tensors.dtype_name(tensor), tuple(tensor.shape), tensor.stride())
