"""`choose`: people, and policies from anywhere, in; the one that suits them best, with a certificate, out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from privrl.data.dataset import AbstractDataset
from privrl.data.tables.shards import ShardedEpisodes
from privrl.evaluation.chooser import LEAST_PEOPLE, LIMIT, Chooser
from privrl.executors.executor import AbstractExecutor
from privrl.mdp.types import TabularPolicy
from privrl.privacy.accounting.certificate import Certificate
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.privatizers import AbstractPrivatizer, PairingError
from privrl.studies.offline.evaluate import AnyPolicy, policy_arrays
from privrl.studies.offline.procedure import ask_curator
from privrl.studies.results.binding import policy_sha256
from privrl.studies.results.result import Result

_MOST_NOISE = 0.02  # in a mean score, as a share of the largest return
_ADDS_UP = (
    "this covers the choice alone: somebody who is also among the people that a candidate was learnt from is covered "
    "by both certificates together, whose costs add up"
)


@dataclass(frozen=True)
class Choice:
    """Which candidate was chosen.

    Attributes:
        index: its number.
        candidate: as it was given; `None` for practice itself.
        scored: the arrays of what was scored: the candidate's whole advice, however much of it is handed out.
        certificate: of the choice alone, bound to the hash of `scored`.
    """

    index: int
    candidate: AnyPolicy | None
    scored: Mapping[str, np.ndarray]
    certificate: Certificate


def choose(
    people: AbstractDataset,
    candidates: Sequence[AnyPolicy | None],
    privatizer: AbstractPrivatizer,
    *,
    terminal: tuple[int, ...] = (),
    rewards_at_end: bool = False,
    key: PRNGKeyArray | None = None,
    unit: str | None = None,
    store: ReleaseStore | None = None,
    executor: AbstractExecutor | None = None,
) -> Choice:
    """Lets people who were not learnt from choose among policies.

    Half of the people, by a secret coin each, say what practice does and how people fare; the other half choose by the
    scores of `statistics/choice.py`. Where practice follows something that was not recorded, scores are biased, and the
    choice can be harmful. Use other people than the candidates were learnt from, and again others to evaluate the one
    that is chosen.

    Arguments:
        people: at least 10,000.
        candidates: at least two: a `Result`, a `TabularPolicy`, an `AssistedPolicy` (its whole advice), probabilities
            `[S, A]` or `[H, S, A]`, actions `[S]`, the path of an .npz file with one such array, or `None` for practice
            itself.
        privatizer: `Central(...)` with a delta and neighbours who replace one person, or `NonPrivate()`.
        terminal: public states whose entry ends a stay.
        rewards_at_end: only the step that ends a stay pays, so returns are at most 1.
        key, unit, store, executor: as in `fit`.

    **Formal guarantee.** One person is in one half. The certificate covers every release of both: it is the larger one
    of what the two halves cost. Its choice is not an estimate: nothing is said about how much better it is.
    """
    if privatizer.adjacency != "replace-one" and privatizer.notion != "none":
        raise PairingError(
            f"`adjacency` is {privatizer.adjacency!r}, and whether there are enough people to choose must be public. "
            "Use `adjacency='replace-one'`."
        )
    if len(candidates) < 2:
        raise ValueError(f"There are {len(candidates)} candidates; give at least two (`None` for practice itself).")
    if executor is not None:
        people = ShardedEpisodes.from_dataset(people, executor)  # so that workers count them, too
    space = people.num_states, people.num_actions
    scored = [_scored(candidate) for candidate in candidates]
    given = np.stack([_probabilities(arrays, people.horizon, *space) for arrays in scored])
    chooser = Chooser(*space, people.horizon, jnp.asarray(given), terminal, rewards_at_end)
    refuse_too_few(round(chooser.share * people.num_units), privatizer)
    answer = ask_curator("choose", people, chooser, chooser.choose, privatizer, key=key, unit=unit, store=store)
    index = answer.found
    notes = (
        *answer.certificate.notes,
        _ADDS_UP,
        f"of {len(candidates)} candidates, number {index} was chosen, counting from 0",
    )
    certificate = replace(answer.certificate, result_sha256=policy_sha256(scored[index]), notes=notes)
    return Choice(index, candidates[index], scored[index], certificate)


def refuse_too_few(choosers: int, privatizer: AbstractPrivatizer) -> None:
    """Refuses a choice that sampling error, or noise, would make; from public numbers, before anything is released."""
    epsilon = getattr(privatizer, "epsilon", None)
    rho = getattr(privatizer, "rho", None)
    epsilon = (2.0 * rho) ** 0.5 if epsilon is None and rho is not None else epsilon
    needed = LEAST_PEOPLE if not epsilon else max(LEAST_PEOPLE, round(4.0 * LIMIT / (_MOST_NOISE * epsilon)))
    if choosers < needed:
        raise ValueError(
            f"{choosers:,} people would choose, and at least {needed:,} are needed at this budget: with fewer, "
            "sampling error and noise would decide. Nothing was released. Take the advice of one recipe, or practice's "
            "most frequent action, or let more people choose."
        )


def _scored(candidate: AnyPolicy | None) -> dict[str, np.ndarray]:
    """The whole advice of a candidate, as `probabilities` or `actions`; nothing for practice."""
    if candidate is None:
        return {}
    if isinstance(candidate, Result) and isinstance(candidate.advice, TabularPolicy):
        candidate = candidate.advice
    named = policy_arrays(candidate)
    return {"actions": np.asarray(named["advice"])} if "advice" in named else named


def _probabilities(scored: Mapping[str, np.ndarray], horizon: int, S: int, A: int) -> Float[np.ndarray, "H S A"]:
    """By step; zeros for practice."""
    if not scored:
        return np.zeros((horizon, S, A))
    given: Any = scored.get("probabilities")
    if given is None:
        actions = scored["actions"]
        if actions.shape != (S,) or actions.min(initial=0) < 0 or actions.max(initial=0) >= A:
            raise ValueError(f"A candidate has actions of shape {actions.shape}; give one in [0, {A}) for {S} states.")
        given = np.eye(A)[actions]
    if given.shape not in ((S, A), (horizon, S, A)):
        raise ValueError(
            f"A candidate has shape {list(given.shape)}; these people's world needs {[S, A]} or {[horizon, S, A]}."
        )
    if not ((given >= 0.0).all() and np.abs(given.sum(axis=-1) - 1.0).max(initial=0.0) <= 1e-6):  # also not a number
        raise ValueError(
            "The probabilities of a candidate must be at least 0 and add up to 1 in every state. Nothing was released."
        )
    return np.broadcast_to(given, (horizon, S, A)).astype(float)
