"""How PyTorch's tensors cross between processes: as arrays do, their bytes out of band.

A tensor is pickled as the array of its bytes with dtype, shape and strides, in either direction. So its memory is
shared by all workers, or lies in the slot of a batch, as an array's does; of a slice only its own elements travel.
"""

from __future__ import annotations

from typing import Any

from ... import tensors
from ...errors import SerializationError


def reduced(tensor: Any) -> Any:
    """Return how a plain tensor is made again.

    Raises:
        SerializationError: it is quantized.
    """
    if tensors.is_quantized(tensor):
        raise SerializationError(
            f"a quantized tensor ({tensor.dtype}) cannot be sent; send what tensor.dequantize() gives"
        )
    if not tensors.is_dense(tensor):
        tensor = tensor.clone().resolve_conj().resolve_neg()
    memory = tensors.bytes_of(tensor)
    return tensors.over, (memory, tensors.dtype_name(tensor), tuple(tensor.shape), tensor.stride())
