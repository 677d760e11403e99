"""Policies in files: arrays by name, and the same as JSON for readers elsewhere."""

import io
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from privrl.contracts.policy import CLASS, AbstractPolicy, class_in, is_registered
from privrl.contracts.untrusted import MALFORMED, read_json, read_npz
from privrl.mdp.assisted import AssistedPolicy, check_strength
from privrl.mdp.assisted_measured import ASSISTED_ARRAY_NAMES, AssistedMeasuredPolicy
from privrl.mdp.lq import LinearPolicy
from privrl.mdp.measured_policy import ARRAY_NAMES, MeasuredPolicy
from privrl.mdp.rules import RULES, rules_from_arrays
from privrl.mdp.types import TabularPolicy
from privrl.studies.results.binding import arrays_of, policy_sha256

_AXES: dict[Any, dict[str, int]] = {  # of each array
    TabularPolicy: {"probabilities": 3},
    LinearPolicy: {"gains": 3, "radius": 0},
    AssistedPolicy: {"advice": 1, "support": 1, "max_ratio": 0, "max_weight": 0, "horizon": 0, "strength": 1},
}


def export_policy(policy: Any, report: Mapping[str, Any]) -> dict[str, Any] | None:
    """The JSON of a policy, with the names of states and actions in its report; `None` if its kind has no JSON."""
    kinds = TabularPolicy | AssistedPolicy | MeasuredPolicy | AssistedMeasuredPolicy
    if not isinstance(policy, kinds) or is_registered(policy):
        return None
    named = {f"{what}_names": report.get("names", {}).get(f"{what}s") for what in ("state", "action")}
    return {**policy.to_json(), **{name: names for name, names in named.items() if names}}


def policy_bytes(policy: Any) -> bytes:
    """The .npz file of a policy.

    Raises:
        TypeError: `read_policy` could not read it.
    """
    file = io.BytesIO()
    try:
        np.savez_compressed(file, allow_pickle=False, **arrays_of(policy))
        read = read_policy(file.getvalue(), "The policy")
        if type(read) is type(policy) and policy_sha256(read) == policy_sha256(policy):
            return file.getvalue()
    except (TypeError, ValueError, AttributeError):
        pass
    raise TypeError(
        f"A `{type(policy).__name__}` cannot be saved, because it could not be loaded again. Make it a subclass of "
        "`AbstractPolicy` whose fields are arrays, and register the class with `privrl.mdp.register_policy`."
    )


def is_exported(policy: object, report: Mapping[str, object], content: bytes) -> bool:
    """Whether this is the JSON of that policy, in every digit."""
    return bool(read_json(content, "`policy.json`") == export_policy(policy, report))


def read_policy(content: bytes, what: str) -> AbstractPolicy:
    """The policy whose arrays are in an .npz file, of whatever kind; `what` names the file in a refusal."""
    arrays = read_npz(content, what)
    class_in(arrays)  # a class that is not registered is not damage
    try:
        names, rules = set(arrays) - {RULES}, rules_from_arrays(arrays)
        if CLASS in names:
            own: Any = AssistedMeasuredPolicy if names > ASSISTED_ARRAY_NAMES else class_in(arrays)
            return own.from_arrays(arrays)
        if names == ARRAY_NAMES:
            return MeasuredPolicy.from_arrays(arrays)
        if names == ASSISTED_ARRAY_NAMES:
            return AssistedMeasuredPolicy.from_arrays(arrays)
        (kind,) = (kind for kind, axes in _AXES.items() if axes.keys() == names)
        if {name: arrays[name].ndim for name in names} != _AXES[kind]:
            raise ValueError("An array has another number of axes.")
        if kind is AssistedPolicy and arrays["advice"].shape != arrays["support"].shape:
            raise ValueError("`advice` and `support` have different lengths.")
        check_strength(arrays.get("strength", 0.0))
        read = {name: jnp.asarray(arrays[name]) for name in names}
        return kind(**read) if kind is LinearPolicy else kind(**read, rules=rules)
    except MALFORMED as error:
        raise ValueError(f"{what} is not a saved policy, or is damaged.") from error
