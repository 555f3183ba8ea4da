"""PyTorch's tensors as memory: its owner, a copy of it, its bytes.

Only plain tensors are handled: dense ones in main memory, without gradients. All others (of a GPU, sparse, quantized,
nested, parameters of a model) are left to PyTorch. The bytes may be of any dtype, including dtypes that NumPy lacks.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from .memory.leases import Buffers


def is_tensor(value: Any) -> bool:
    """Return whether `value` is a plain tensor; imports nothing."""
    if type(value) is not getattr(sys.modules.get("torch"), "Tensor", None):
        return False
    plain: bool = value.layout is sys.modules["torch"].strided and value.device.type == "cpu"
    return plain and not value.requires_grad and not value.is_quantized and not value.is_nested


def is_any_tensor(value: Any) -> bool:
    """Return whether `value` is a tensor of any kind, including a parameter of a model; imports nothing."""
    return isinstance(value, getattr(sys.modules.get("torch"), "Tensor", ()))


def is_dense(tensor: Any) -> bool:
    """Return whether the elements lie side by side, each once, in any order of the axes."""
    return not tensor.is_conj() and not tensor.is_neg() and bool(tensor.stride() == _dense_strides(tensor))


def _dense_strides(tensor: Any) -> tuple[int, ...]:
    """Return the strides of a copy; a dense tensor's copy has its strides."""
    return tuple(sys.modules["torch"].empty_like(tensor, device="meta").stride())


def copied(tensor: Any, buffers: Buffers) -> Any:
    """Return a copy of a plain tensor, with its strides if it is dense, in memory from `buffers`."""
    nbytes = tensor.numel() * tensor.element_size()
    if nbytes < buffers.smallest:
        return tensor.clone().resolve_conj().resolve_neg()
    memory = buffers.empty((nbytes,), np.dtype(np.uint8))
    return over(memory, dtype_name(tensor), tuple(tensor.shape), _dense_strides(tensor)).copy_(tensor)


def promoted(a: Any, b: Any) -> Any:
    """Return the dtype of PyTorch's that values of both dtypes are converted to."""
    return sys.modules["torch"].promote_types(a, b)


def dtype_name(tensor: Any) -> str:
    """Return PyTorch's name of the dtype: ``"bfloat16"``."""
    return str(tensor.dtype).removeprefix("torch.")


def bytes_of(tensor: Any) -> np.ndarray:
    """Return the memory of a dense tensor, ``(n,) uint8``: only its own elements, not the rest of its storage."""
    flat = tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())
    return np.asarray(flat.view(sys.modules["torch"].uint8).numpy())


def over(memory: Any, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """Return a dense tensor over the bytes `memory`, ``(n,) uint8``, writable. The tensor keeps them alive. Imports
    PyTorch. Strides are in elements.
    """
    import torch

    kind = getattr(torch, dtype)
    if math.prod(shape) == 0:
        return torch.empty_strided(shape, strides, dtype=kind)
    return torch.from_numpy(memory).view(kind).as_strided(shape, strides)
