"""Constants and copies without a compiler.

Outside compiled code JAX compiles a program for every operation and every shape, even to copy an array. In tests NumPy
does what only moves numbers: the same bits.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax._src import core
from jax._src.array import ArrayImpl
from jax._src.lax import lax, slicing

Made = np.ndarray | None


def _staged(x: np.ndarray) -> Made:
    return x


def _broadcast(x: np.ndarray, *, shape: tuple, broadcast_dimensions: tuple, sharding: Any) -> Made:
    if sharding is not None:
        return None
    sizes = np.ones(len(shape), int)
    sizes[list(broadcast_dimensions)] = x.shape
    return np.broadcast_to(x.reshape(sizes), shape)


def _converted(x: np.ndarray, *, new_dtype: Any, weak_type: bool, sharding: Any) -> Made:
    """From truth values and whole numbers, which every number type holds alike."""
    del weak_type
    exact = x.dtype.kind == "b" or (x.dtype == np.int64 and new_dtype == np.float64) or x.dtype == new_dtype
    return x.astype(new_dtype) if exact and sharding is None else None


def _iota(*, dtype: Any, shape: tuple, dimension: int, sharding: Any) -> Made:
    if sharding is not None or jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
        return None
    return np.broadcast_to(
        np.arange(shape[dimension], dtype=dtype).reshape([-1] + [1] * (len(shape) - dimension - 1)), shape
    )


def _reshaped(x: np.ndarray, *, new_sizes: tuple, dimensions: Any, sharding: Any) -> Made:
    return x.reshape(new_sizes) if dimensions is None and sharding is None else None


def _squeezed(x: np.ndarray, *, dimensions: tuple) -> Made:
    return x.squeeze(tuple(dimensions))


def _transposed(x: np.ndarray, *, permutation: tuple) -> Made:
    return x.transpose(permutation)


def _concatenated(*parts: np.ndarray, dimension: int) -> Made:
    return np.concatenate(parts, axis=dimension)


def _sliced(x: np.ndarray, *, start_indices: tuple, limit_indices: tuple, strides: Any) -> Made:
    steps = strides or (1,) * x.ndim
    return x[tuple(map(slice, start_indices, limit_indices, steps))]


_BY_NUMPY: dict[core.Primitive, Callable[..., Made]] = {
    core.stage_p: _staged,
    lax.broadcast_in_dim_p: _broadcast,
    lax.convert_element_type_p: _converted,
    lax.iota_p: _iota,
    lax.reshape_p: _reshaped,
    lax.squeeze_p: _squeezed,
    lax.transpose_p: _transposed,
    lax.concatenate_p: _concatenated,
    slicing.slice_p: _sliced,
}


def _plain(x: Any) -> bool:
    """Whether NumPy knows its type."""
    return isinstance(x, ArrayImpl | np.ndarray | np.generic) and x.dtype.kind in "biuf"


def _array(x: np.ndarray, weak_type: bool) -> jax.Array:
    """On the device; `weak_type` where its type is that of a Python number, and gives way to others."""
    made = jax.device_put(np.array(x))
    if not weak_type:
        return made
    return ArrayImpl(made.aval.update(weak_type=True), made.sharding, made._arrays, made.committed, _skip_checks=True)


def _moved(primitive: core.Primitive, made: Callable[..., Made]) -> Callable[..., Any]:
    compiled = primitive.impl

    def impl(*arrays: Any, **parameters: Any) -> Any:
        found = made(*map(np.asarray, arrays), **parameters) if all(map(_plain, arrays)) else None
        if found is None:
            return compiled(*arrays, **parameters)
        weak_type = bool(arrays) and all(getattr(x, "weak_type", False) for x in arrays)
        return _array(found, parameters.get("weak_type", weak_type))

    return impl


def move_by_numpy() -> None:
    """For the rest of this process."""
    for primitive, made in _BY_NUMPY.items():
        primitive.def_impl(_moved(primitive, made))
