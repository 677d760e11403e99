"""Policies in files: arrays by name, and the same as JSON for readers elsewhere."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from privrl.contracts.untrusted import MALFORMED, read_json, read_npz
from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.assisted_measured import ASSISTED_ARRAY_NAMES, AssistedMeasuredPolicy
from privrl.mdp.lq import LinearPolicy
from privrl.mdp.measured_policy import ARRAY_NAMES, MeasuredPolicy
from privrl.mdp.rules import RULES, rules_from_arrays
from privrl.mdp.types import TabularPolicy

_AXES: dict[Any, dict[str, int]] = {  # of each array
    TabularPolicy: {"probabilities": 3},
    LinearPolicy: {"gains": 3, "radius": 0},
    AssistedPolicy: {"advice": 1, "support": 1, "max_ratio": 0, "max_weight": 0},
}


def export_policy(policy: Any, report: Mapping[str, Any]) -> dict[str, Any] | None:
    """The JSON of a policy, with the names of states and actions in its report; `None` if its kind has no JSON."""
    if not isinstance(policy, TabularPolicy | AssistedPolicy | MeasuredPolicy | AssistedMeasuredPolicy):
        return None
    named = {f"{what}_names": report.get("names", {}).get(f"{what}s") for what in ("state", "action")}
    return {**policy.to_json(), **{name: names for name, names in named.items() if names}}


def is_exported(policy: Any, report: Mapping[str, Any], content: bytes) -> bool:
    """Whether this is the JSON of that policy, in every digit."""
    return bool(read_json(content, "`policy.json`") == export_policy(policy, report))


def read_policy(content: bytes, what: str) -> Any:
    """The policy whose arrays are in an .npz file, of whatever kind; `what` names the file in a refusal."""
    arrays = read_npz(content, what)
    try:
        names, rules = set(arrays) - {RULES}, rules_from_arrays(arrays)
        if names == ARRAY_NAMES:
            return MeasuredPolicy.from_arrays(arrays)
        if names == ASSISTED_ARRAY_NAMES:
            return AssistedMeasuredPolicy.from_arrays(arrays)
        (kind,) = (kind for kind, axes in _AXES.items() if axes.keys() == names)
        if {name: arrays[name].ndim for name in names} != _AXES[kind]:
            raise ValueError("An array has another number of axes.")
        if kind is AssistedPolicy and arrays["advice"].shape != arrays["support"].shape:
            raise ValueError("`advice` and `support` have different lengths.")
        own = {name: jnp.asarray(arrays[name]) for name in names}
        return kind(**own) if kind is LinearPolicy else kind(**own, rules=rules)
    except MALFORMED as error:
        raise ValueError(f"{what} is not a saved policy, or is damaged.") from error
