"""Shapes in the annotations of modules that commands import to start: `jaxtyping`, if anything else has imported it.

Importing `jaxtyping` takes as long as half of NumPy. Its types matter to type checkers and to tests that check shapes,
which import it first. Everywhere else `Float[np.ndarray, " N"]` may as well be `np.ndarray`.
"""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    from jaxtyping import Bool, Float, Float64, Int, Shaped, UInt8, UInt32, UInt64
else:

    class _Array:
        def __class_getitem__(cls, of: tuple[object, str]) -> object:
            return of[0]

    Bool = Float = Float64 = Int = Shaped = UInt8 = UInt32 = UInt64 = _Array

__all__ = ["Bool", "Float", "Float64", "Int", "Shaped", "UInt8", "UInt32", "UInt64"]
