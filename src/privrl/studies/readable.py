"""Records from outside, read or not: whatever is passed, only what has the form of a record gets any further.

Whether one person's record can be read must not decide anything about another person's, and words about it must not
quote it: errors of the libraries below do both.
"""

from typing import Any

import jax
import numpy as np


def readable(record: Any, blank: Any) -> Any | None:
    """The record as arrays of the form of `blank`, or `None` if it has another form: its parts, shapes or kinds."""
    try:
        leaves, form = jax.tree.flatten(record)
        arrays = [np.asarray(leaf) for leaf in leaves]
        same_parts = bool(form == jax.tree.structure(blank))  # type: ignore[operator]
        forms = jax.tree.leaves(blank)
        if not same_parts or not all(map(_fits, arrays, forms)):
            return None
        wide = [array.astype(np.asarray(wanted).dtype) for array, wanted in zip(arrays, forms, strict=True)]
        return jax.tree.unflatten(form, wide)
    except Exception:  # whatever the record does to those who look at it
        return None


def _fits(array: np.ndarray, wanted: Any) -> bool:
    whole = np.asarray(wanted).dtype.kind in "iu"
    return array.shape == np.shape(wanted) and array.dtype.kind in ("iu" if whole else "iuf")
