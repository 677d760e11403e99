"""Policies from anywhere: results, saved folders, arrays, files of arrays."""

from collections.abc import Mapping
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from privrl.contracts.policy import AbstractPolicy
from privrl.contracts.untrusted import read_bytes, read_npz
from privrl.mdp.assisted import check_strength, stationary_advice
from privrl.mdp.rules import RULES
from privrl.mdp.types import TabularPolicy
from privrl.studies.results.result import Result

AnyPolicy = Result | AbstractPolicy | str | Path | ArrayLike


def load_policy(policy: AnyPolicy) -> AnyPolicy:
    """The result that is saved in a folder; any other policy as it is."""
    return Result.load(policy) if isinstance(policy, str | Path) and Path(policy).is_dir() else policy


def values_of(policy: AnyPolicy, num_states: int) -> Float[Array, " S"] | None:
    """The values of states that were saved with a result, and that its certificate names; other policies have none."""
    return None if not isinstance(policy, Result) else _saved_numbers(policy.facts.get("values"), num_states)


def strength_of(policy: AnyPolicy, named: Mapping[str, np.ndarray], num_states: int) -> Float[Array, " S"] | None:
    """How strongly advice is given in each state: that of an assisted policy, or what was saved with a result."""
    if "strength" in named:
        check_strength(named["strength"])
        return jnp.asarray(named["strength"], float)
    saved = policy.facts.get("strength") if isinstance(policy, Result) else None
    found = _saved_numbers(saved, num_states)
    if saved is not None and found is None:
        raise ValueError("The report beside the policy is damaged: `strength` must hold one number for each state.")
    return found


def _saved_numbers(saved: list[float | None] | None, num_states: int) -> Float[Array, " S"] | None:
    """A finite number for each state; `None` if something else was saved."""
    return None if saved is None or len(saved) != num_states or None in saved else jnp.asarray(saved, float)


def policy_arrays(policy: AnyPolicy) -> dict[str, np.ndarray]:
    """The arrays that a policy is made of, by name: what a certificate is bound to.

    One array from elsewhere is called `actions` where it has one axis, `probabilities` otherwise.
    """
    given: object = policy.policy if isinstance(policy, Result) else policy
    if isinstance(given, AbstractPolicy):
        return given.arrays()
    found: Mapping[str, object] = {"": given}
    if isinstance(given, (str, Path)):
        found = read_npz(read_bytes(Path(given)), f"`{given}`")
        if set(found) - {RULES} == {"advice", "support", "max_ratio", "max_weight", "horizon", "strength"}:
            return dict(found)
    if len(found) != 1:
        raise ValueError(f"The policy has the arrays {sorted(found)}; give one, of probabilities or of actions.")
    array = np.asarray(next(iter(found.values())))
    if array.ndim == 1 and array.dtype.kind in "iu":
        return {"actions": array}
    if array.ndim in (2, 3) and array.dtype.kind == "f":
        if not ((array >= 0).all() and np.abs(array.sum(axis=-1) - 1.0).max(initial=0.0) <= 1e-6):  # also not a number
            raise ValueError("The probabilities of the policy must be at least 0 and add up to 1 in every state.")
        return {"probabilities": array}
    raise ValueError(
        f"The policy is an array of shape {array.shape} and type {array.dtype}; give probabilities [S, A] or "
        "[H, S, A], or whole-numbered actions [S]."
    )


def advice_of(policy: AnyPolicy, named: Mapping[str, np.ndarray]) -> np.ndarray:
    """One action per state."""
    if isinstance(policy, Result) and isinstance(policy.advice, TabularPolicy):
        named = policy_arrays(policy.advice)
    if "probabilities" in named:
        p = named["probabilities"]
        return stationary_advice(p if p.ndim == 3 else p[None])
    if "actions" not in named and "advice" not in named:
        raise TypeError(
            "This policy cannot be compared with practice. Evaluate a `TabularPolicy`, or a `MeasuredPolicy` or a "
            "subclass of it."
        )
    return named["actions"] if "actions" in named else named["advice"]
