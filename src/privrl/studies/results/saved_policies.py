"""Policies in files: arrays by name, and for policies on measurements the same as JSON."""

from dataclasses import fields
from typing import Any

import jax.numpy as jnp

from privrl.contracts.untrusted import MALFORMED, read_json, read_npz
from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.assisted_measured import ASSISTED_ARRAY_NAMES, AssistedMeasuredPolicy
from privrl.mdp.lq import LinearPolicy
from privrl.mdp.measured_policy import ARRAY_NAMES, MeasuredPolicy
from privrl.mdp.types import TabularPolicy

_AXES: dict[Any, dict[str, int]] = {  # of each array
    TabularPolicy: {"probabilities": 3},
    LinearPolicy: {"gains": 3, "radius": 0},
    AssistedPolicy: {"advice": 1, "support": 1, "max_ratio": 0, "max_weight": 0},
}


def is_exported(policy: Any, content: bytes) -> bool:
    """Whether this is the JSON of that policy, in every digit."""
    kept = read_json(content, "`policy.json`")
    return isinstance(policy, MeasuredPolicy | AssistedMeasuredPolicy) and bool(kept == policy.to_json())


def read_policy(content: bytes, what: str) -> Any:
    """The policy whose arrays are in an .npz file, of whatever kind; `what` names the file in a refusal."""
    arrays = read_npz(content, what)
    try:
        if set(arrays) == ARRAY_NAMES:
            return MeasuredPolicy.from_arrays(arrays)
        if set(arrays) == ASSISTED_ARRAY_NAMES:
            return AssistedMeasuredPolicy.from_arrays(arrays)
        (kind,) = (kind for kind in _AXES if {f.name for f in fields(kind)} == set(arrays))
        if {name: array.ndim for name, array in arrays.items()} != _AXES[kind]:
            raise ValueError("An array has another number of axes.")
        if kind is AssistedPolicy and arrays["advice"].shape != arrays["support"].shape:
            raise ValueError("`advice` and `support` have different lengths.")
        return kind(**{name: jnp.asarray(array) for name, array in arrays.items()})
    except MALFORMED as error:
        raise ValueError(f"{what} is not a saved policy, or is damaged.") from error
