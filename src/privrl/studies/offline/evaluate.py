"""`evaluate`: people who were held out, and a policy from anywhere, in; how it compares with practice, out."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from privrl.contracts.untrusted import read_bytes, read_npz
from privrl.data.dataset import AbstractDataset
from privrl.evaluation.comparing import AbstractEvaluator
from privrl.evaluation.evaluator import Evaluator
from privrl.evaluation.measured_evaluator import MeasuredEvaluator
from privrl.executors.executor import AbstractExecutor
from privrl.mdp.assisted import AssistedPolicy, stationary_advice
from privrl.mdp.assisted_measured import AssistedMeasuredPolicy
from privrl.mdp.measured_policy import MeasuredPolicy
from privrl.mdp.types import TabularPolicy
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.privatizers import AbstractPrivatizer, PairingError
from privrl.studies.offline.procedure import ask_curator
from privrl.studies.results.binding import policy_sha256
from privrl.studies.results.certified_evaluation import CertifiedEvaluation
from privrl.studies.results.result import Result

AnyPolicy = Result | TabularPolicy | AssistedPolicy | MeasuredPolicy | AssistedMeasuredPolicy | str | Path | ArrayLike

_ADDS_UP = (
    "this covers the evaluation alone: somebody who is also among the people that the policy was learnt from is "
    "covered by both certificates together, whose costs add up"
)
_NO_MODEL = (
    "The whole advice is not modelled: a model needs values of states from the people who were learnt from. Recipes "
    "that give values (such as `dp-tdfp` and `dp-tap`) save them with their result; this policy has none beside it."
)


def evaluate(
    held: AbstractDataset,
    policy: AnyPolicy,
    privatizer: AbstractPrivatizer,
    *,
    practice: Float[ArrayLike, "S A"] | None = None,
    max_ratio: float = 1.5,
    max_weight: float = 4.0,
    return_range: tuple[float, float] = (0.0, 1.0),
    terminal: tuple[int, ...] = (),
    key: PRNGKeyArray | None = None,
    unit: str | None = None,
    store: ReleaseStore | None = None,
    executor: AbstractExecutor | None = None,
) -> CertifiedEvaluation:
    """Compares a policy with practice on people who were not used to learn it.

    Arguments:
        held: the people, for example the second part of `privrl.data.split`.
        policy: a `Result`, its policy, or one from elsewhere: probabilities `[S, A]` or `[H, S, A]`, actions
            `[S]`, or the path of an .npz file with one such array. Where it is not certain, its most probable action
            is the advice.
        privatizer: `Central(...)` with neighbours who replace one person, or `NonPrivate()`.
        practice: public probabilities `[S, A]` of practice. Without them they are estimated, and nothing is certified.
        max_ratio, max_weight: of the assisted policy, see `AssistedPolicy`. An infinite `max_ratio` certifies nothing.
        return_range: the public smallest and largest return of a stay; what is outside is cut.
        terminal: public states whose entry ends a stay, for the model of the whole advice.
        key, unit, store, executor: as in `fit`.

    Returns:
        the evaluation, with a certificate of its own that is bound to the policy's hash.

    **Formal guarantee.** The certificate covers every release of this evaluation, for one person of `held` replaced. It
    says nothing about what the policy reveals: for somebody who was learnt from too, the two certificates compose.
    """
    if privatizer.adjacency != "replace-one" and privatizer.notion != "none":
        raise PairingError(
            f"`adjacency` is {privatizer.adjacency!r}, and an evaluation takes means over people, whose number must be "
            "public. Use `adjacency='replace-one'`."
        )
    named = policy_arrays(policy)
    settings = {"return_range": return_range, "max_ratio": max_ratio, "max_weight": max_weight}
    evaluator: AbstractEvaluator | None = _on_measurements(policy, held, settings)
    if evaluator is None:
        evaluator = _on_states(policy, named, held, practice, settings | {"terminal": terminal})
    elif practice is not None or terminal:
        raise ValueError(
            "`practice` and `terminal` speak of numbered states, and this policy is on measurements. Leave them out."
        )
    how: dict[str, Any] = {"key": key, "unit": unit, "store": store, "executor": executor}
    answer = ask_curator("evaluate", held, evaluator, evaluator.evaluate, privatizer, **how)
    found = answer.found
    if isinstance(evaluator, Evaluator) and evaluator.feature is None:
        found = replace(found, refused=(*found.refused, _NO_MODEL))
    notes = (*answer.certificate.notes, _ADDS_UP)
    certificate = replace(answer.certificate, result_sha256=policy_sha256(named), notes=notes)
    return CertifiedEvaluation.of(found, certificate)


def _on_states(
    policy: AnyPolicy,
    named: Mapping[str, np.ndarray],
    held: AbstractDataset,
    practice: Float[ArrayLike, "S A"] | None,
    settings: Mapping[str, Any],
) -> Evaluator:
    """The evaluator of a finite world."""
    advice = _advice(policy, named)
    if practice is not None:
        num_actions = np.shape(practice)[-1]
    else:
        num_actions = named["probabilities"].shape[-1] if "probabilities" in named else held.num_actions
    world = (len(advice), num_actions, held.horizon, held.num_units, jnp.asarray(advice))
    known = None if practice is None else jnp.asarray(practice, float)
    return Evaluator(*world, known, _values(policy, len(advice)), **settings)


def _on_measurements(policy: AnyPolicy, held: AbstractDataset, settings: Mapping[str, Any]) -> MeasuredEvaluator | None:
    """The evaluator of a policy on measurements; none for other policies.

    An assisted policy is evaluated by the advice behind it. Weights of values come from an assisted policy, or from the
    report beside a result; without any, cells are told apart by how often practice does what is advised, alone.
    """
    values: Float[Array, " d"] | None = None
    whole: Any = policy.policy if isinstance(policy, Result) else policy
    if isinstance(whole, AssistedMeasuredPolicy):
        values, whole = whole.values, whole.advice
    if not isinstance(whole, MeasuredPolicy):
        return None
    if values is None:
        values = _values(policy, whole.features.dim)
    weights = jnp.zeros(whole.features.dim) if values is None else values
    return MeasuredEvaluator(whole, weights, held.horizon, held.num_units, **settings)


def _values(policy: AnyPolicy, num_states: int) -> Float[Array, " S"] | None:
    """The values of states that were saved with a result, and that its certificate names; other policies have none."""
    saved = policy.report.get("values") if isinstance(policy, Result) else None
    return None if saved is None or len(saved) != num_states or None in saved else jnp.asarray(saved, float)


def policy_arrays(policy: AnyPolicy) -> dict[str, np.ndarray]:
    """The arrays that a policy is made of, by name: what a certificate is bound to.

    One array from elsewhere is called `actions` where it has one axis, `probabilities` otherwise.
    """
    if isinstance(policy, Result):
        policy = policy.policy
    if isinstance(policy, MeasuredPolicy | AssistedMeasuredPolicy):
        return policy.arrays()
    if isinstance(policy, TabularPolicy):
        return {"probabilities": np.asarray(policy.probabilities)}
    if isinstance(policy, AssistedPolicy):
        return {name: np.asarray(value) for name, value in vars(policy).items()}
    found: Mapping[str, Any] = {"": policy}
    if isinstance(policy, (str, Path)):
        found = read_npz(read_bytes(Path(policy)), f"`{policy}`")
        if set(found) == {"advice", "support", "max_ratio", "max_weight"}:
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


def _advice(policy: AnyPolicy, named: Mapping[str, np.ndarray]) -> np.ndarray:
    """One action per state."""
    if isinstance(policy, Result) and isinstance(policy.advice, TabularPolicy):
        named = policy_arrays(policy.advice)
    if "probabilities" in named:
        p = named["probabilities"]
        return stationary_advice(p if p.ndim == 3 else p[None])
    return named["actions"] if "actions" in named else named["advice"]
