"""`choose`: people, and policies from anywhere, in; the one that suits them best, with a certificate, out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from privrl.contracts.printing import short_repr
from privrl.data.dataset import AbstractDataset
from privrl.data.tables.shards import ShardedEpisodes
from privrl.evaluation.chooser import LEAST_PEOPLE, LIMIT, Chooser
from privrl.evaluation.decision import Decision, Reason
from privrl.executors.executor import AbstractExecutor
from privrl.mdp.types import TabularPolicy
from privrl.privacy.accounting.certificate import Certificate
from privrl.privacy.shared_budget import AnySharedBudget
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.privatizers import AbstractPrivatizer, PairingError
from privrl.recipes.pairing import BudgetArguments, central_of
from privrl.studies.keys import KeyLike, optional_key
from privrl.studies.offline.policies import AnyPolicy, load_policy, policy_arrays
from privrl.studies.offline.procedure import ask_curator
from privrl.studies.offline.table_fit import AnySchema, Paths, open_people, open_store
from privrl.studies.offline.task import Ends
from privrl.studies.results.binding import policy_sha256
from privrl.studies.results.finishing import warn_of_delta
from privrl.studies.results.result import Result

_MOST_NOISE = 0.02  # in a mean score, as a share of the largest return
_ADDS_UP = (
    "this covers the choice alone: a person who is also among the people that a candidate was learnt from is covered "
    "by both certificates together, whose costs add up"
)


@dataclass(frozen=True)
class Choice:
    """Which candidate was chosen.

    Attributes:
        index: its number.
        candidate: as it was given; `None` for practice itself.
        scored: the arrays that were scored: the candidate's whole advice, also if its policy gives less.
        certificate: of the choice alone, bound to the hash of `scored`.
    """

    index: int
    candidate: AnyPolicy | None
    scored: Mapping[str, np.ndarray]
    certificate: Certificate

    def __repr__(self) -> str:
        chosen = "current practice" if self.candidate is None else f"candidate {self.index}"
        return short_repr("Choice", self.decision.outcome, chosen, self.certificate.guarantee)

    @property
    def decision(self) -> Decision:
        """A choice compares candidates: it is not evidence that the chosen one is better than current practice."""
        if self.candidate is None:
            return Decision("withheld", 0.0)
        return Decision("released without evidence", None, (Reason.NOT_COMPARED,))


def choose(
    people: Paths | AbstractDataset,
    candidates: Sequence[AnyPolicy | None],
    privatizer: AbstractPrivatizer | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    schema: AnySchema | None = None,
    terminal: Sequence[int] = (),
    rewards_at_end: bool = False,
    unit: str | None = None,
    key: KeyLike | None = None,
    store: ReleaseStore | str | Path | None = None,
    executor: AbstractExecutor | None = None,
    budget: AnySharedBudget | None = None,
) -> Choice:
    """Selects a policy on people who were not used to learn any of them.

    >>> world = privrl.envs.make("riverswim", states=3, horizon=4)
    >>> people = world.sample(world.behaviour_policy(), 12_000, jax.random.key(0))
    >>> table = privrl.data.Episodes.from_trajectories(people, num_states=3, num_actions=2)
    >>> always_left, always_right = np.zeros(3, int), np.ones(3, int)
    >>> choice = privrl.choose(table, [always_left, always_right, None], epsilon=1, delta=1e-6, key=0)
    >>> choice
    Choice(released without evidence, candidate 0, central privacy, epsilon 1, delta 1e-06, simulated noise)
    >>> choice.certificate.epsilon <= 1
    True

    A secret coin puts each person into one of two halves. The first half measures current practice and how well people
    fare; the second half scores the candidates (`statistics/choice.py`). If current practice depends on something that
    was not recorded, the scores are biased and the choice can be harmful. Use other people than those whom the
    candidates were learnt from, and again others to evaluate the chosen policy.

    Arguments:
        people: at least 10,000; or the path (or paths) of their table, with a `schema`.
        candidates: at least two: a `Result`, a `TabularPolicy`, an `AssistedPolicy` (its whole advice), probabilities
            `[S, A]` or `[H, S, A]`, actions `[S]`, the path of an .npz file with one such array or of a saved result,
            or `None` for current practice.
        privatizer: `Central(...)` with a delta and neighbours who replace one person, or `NonPrivate()`.
        epsilon, delta, rho: the budget, instead of a privatizer.
        schema: of a table in files: a schema file, or a mapping with the same names.
        terminal: public states whose entry ends an episode; a schema has its own.
        rewards_at_end: whether only the last step of an episode pays, so that returns are at most 1.
        unit, key, store, executor, budget: as in `fit`.

    Returns:
        the chosen candidate, with a certificate of the choice.

    Raises:
        ValueError: there are too few people or candidates, or a candidate does not fit the people.
        TableError: a row of the table is outside the declared bounds. The error does not quote it.
        TypeError: a privatizer or a budget is missing, or both were given.
        BudgetError: the budget is missing or meaningless.
        PairingError: the privatizer has no delta, or hides the number of people.

    Warns:
        PrivacyWarning: `delta` is large for the number of people, or `key` seeds the noise of a table in files.

    **Formal guarantee.** One person is in one half. The certificate covers every release of both: it is the larger of
    the costs of the two halves. The choice is not an estimate: it does not say how much better the candidate is.
    """
    trust = central_of(privatizer, BudgetArguments(epsilon, delta, rho), "A choice")
    if trust.adjacency != "replace-one" and trust.notion != "none":
        raise PairingError(
            f"`adjacency` is {trust.adjacency!r}, and whether there are enough people to choose must be public. "
            "Use `adjacency='replace-one'`."
        )
    if len(candidates) < 2:
        raise ValueError(f"There are {len(candidates)} candidates; give at least two (`None` for current practice).")
    data, ends, noun = open_people(people, schema, Ends(tuple(terminal), rewards_at_end), key)
    if executor is not None:
        data = ShardedEpisodes.from_dataset(data, executor)  # so that workers count them, too
    space = data.num_states, data.num_actions
    scored = [_scored(candidate) for candidate in candidates]
    given = np.stack([_probabilities(arrays, data.horizon, *space) for arrays in scored])
    chooser = Chooser(*space, data.horizon, jnp.asarray(given), ends.terminal, ends.rewards_at_end)
    refuse_too_few(round(chooser.share * data.num_units), trust)
    paying = {"budget": budget, "unit_column": noun, "called": "choice of a policy"}
    how: dict[str, Any] = {"key": optional_key(key), "unit": unit or noun, **paying}
    with open_store(store) as kept:
        answer = ask_curator("choose", data, chooser, chooser.choose, trust, store=kept, **how)
    index = answer.found
    notes = (
        *answer.certificate.notes,
        _ADDS_UP,
        f"of {len(candidates)} candidates, number {index} was chosen, counting from 0",
    )
    certificate = replace(answer.certificate, result_sha256=policy_sha256(scored[index]), notes=notes)
    warn_of_delta(certificate, data.num_units if trust.notion != "none" else None)
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
    candidate = load_policy(candidate)
    if isinstance(candidate, Result) and isinstance(candidate.advice, TabularPolicy):
        candidate = candidate.advice
    named = policy_arrays(candidate)
    if "advice" in named:
        return {"actions": np.asarray(named["advice"])}
    if not named.keys() & {"actions", "probabilities"}:
        raise TypeError("A candidate is not a policy on numbered states. Give a `TabularPolicy`, or its actions.")
    return named


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
