"""People of a simulated pilot: what is recorded about them in each arm, drawn block by block.

Arms follow fixed policies, so people of one arm are independent and alike. A block is one multinomial draw over what
can happen to a person (arm, group, outcomes, or a missing record), whose cost does not depend on the block's length.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from privrl.contracts.learner import Plan
from privrl.envs.recorded_world import OfflineEnv
from privrl.learners.trials.protocol import Protocol
from privrl.learners.trials.trial import Trial, TrialState
from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.multinomial import AnyKey, multinomial
from privrl.mdp.types import TabularPolicy, Trajectory
from privrl.privacy.trust.channels import AbstractChannel
from privrl.statistics.arm_sums import Assignment, Outcomes
from privrl.studies.simulation.sampled_tables import assisted_gain

_SAMPLE = 2**16  # simulated episodes of each arm
_LEVELS = 64  # values that stand for all others, if there are more


class PilotWorld(eqx.Module):
    """What can happen to a person in each arm.

    Arguments:
        values: the values of all outcomes in each case; NaN if one is missing.
        cells: the groups of people in each case.
        first, last: the probabilities of the cases in each arm, for the first person and for the last; in between they
            change in proportion to the number of people.
        people: the number of people.
        missing: the value that a missing record counts as.
    """

    values: Float[Array, "C K"]
    cells: Int[Array, "C P"]
    first: Float[Array, "A C"]
    last: Float[Array, "A C"]
    people: int = eqx.field(static=True)
    missing: float = eqx.field(static=True)
    horizon: int = eqx.field(static=True, default=1, init=False)

    @classmethod
    def binary(
        cls,
        protocol: Protocol,
        means: Sequence[float],
        *,
        drift: float = 0.0,
        missing: Sequence[tuple[float, float]] | None = None,
    ) -> "PilotWorld":
        """Outcomes at one of their two bounds. Secondary outcomes have the same rescaled value, and groups are equally
        large and alike.

        Arguments:
            means: the mean of the rescaled outcome in each arm, for the first person.
            drift: how much the means of all arms grow until the last person.
            missing: for each arm, the probability that a record is missing if the outcome is low, and if it is high.
        """
        low, high = (np.array([getattr(one, bound) for one in protocol.outcomes]) for bound in ("low", "high"))
        values = np.stack([low, high, np.full(len(low), np.nan)])
        rates = np.zeros((len(means), 2)) if missing is None else np.array(missing, float)

        def cases(success: Float[np.ndarray, " A"]) -> Float[np.ndarray, "A 3"]:
            both = np.stack([1 - success, success], axis=1)
            return np.concatenate([both * (1 - rates), (both * rates).sum(axis=1, keepdims=True)], axis=1)

        start = np.array(means, float)
        return cls.grouped(protocol, values, cases(start), cases(start + drift))

    @classmethod
    def grouped(
        cls,
        protocol: Protocol,
        values: Float[np.ndarray, "c K"],
        first: Float[np.ndarray, "A c"],
        last: Float[np.ndarray, "A c"] | None = None,
    ) -> "PilotWorld":
        """The same cases in every group of every partition; groups are equally large and independent."""
        sizes = [len(part.groups) for part in protocol.subgroups]
        groups = np.stack([x.ravel() for x in np.indices(sizes)], axis=1) if sizes else np.zeros((1, 0), int)
        start, end = (
            jnp.asarray(np.tile(p, (1, len(groups))) / len(groups)) for p in (first, first if last is None else last)
        )
        cells = jnp.asarray(np.repeat(groups, len(values), axis=0))
        outcome = protocol.outcome
        missing = outcome.low + outcome.missing_value * (outcome.high - outcome.low)
        return cls(jnp.asarray(np.tile(values, (len(groups), 1))), cells, start, end, protocol.people, missing)

    @classmethod
    def from_world(
        cls, protocol: Protocol, world: Any, policies: Sequence[Any], key: PRNGKeyArray, sample: int = _SAMPLE
    ) -> "PilotWorld":
        """The returns of a known world: practice is that of the world, and each policy has an arm.

        A return is the outcome that decides. If all returns are at a bound, their mean is exact; otherwise simulated
        episodes show how returns are distributed. Outcomes of an assisted policy are drawn at the bounds, with the
        right mean. Secondary outcomes get the rescaled return.

        Arguments:
            world: a finite environment, with practice that may see more than the recorded state.
            policies: the policy of each arm but practice, on recorded states.

        Raises:
            ValueError: the world is not finite, or has other states or actions than a policy.
        """
        _check_sizes(protocol, world, policies)
        outcome = protocol.outcome
        width = outcome.high - outcome.low
        arms: list[tuple[np.ndarray, np.ndarray]] = []  # rescaled values and their probabilities
        for arm, policy in enumerate((world.behaviour_policy(), *policies)):
            own = jax.random.fold_in(key, arm)
            if isinstance(policy, AssistedPolicy):
                practice = float(world.value(world.behaviour_policy()))
                arms.append(
                    _at_bounds((practice + assisted_gain(world, policy, sample, key=own).value - outcome.low) / width)
                )
                continue
            returns = (_returns(world.sample(policy, sample, own)) - outcome.low) / width
            clipped = np.clip(returns, 0.0, 1.0)
            if np.isin(clipped, (0.0, 1.0)).all() and np.array_equal(clipped, returns):
                arms.append(_at_bounds((float(world.value(policy)) - outcome.low) / width))
            else:
                arms.append(_levels(clipped))
        support = np.unique(np.concatenate([values for values, _ in arms]))
        first = np.zeros((len(arms), len(support)))
        for arm, (values, probability) in enumerate(arms):
            np.add.at(first[arm], np.searchsorted(support, values), probability)
        low, high = (np.array([getattr(one, bound) for one in protocol.outcomes]) for bound in ("low", "high"))
        return cls.grouped(protocol, low + support[:, None] * (high - low), first)

    def probabilities(self, seen: Float[Array, ""] | float) -> Float[Array, "A C"]:
        """The probabilities of the cases after `seen` people."""
        share = jnp.asarray(seen, float) / self.people
        return (1 - share) * self.first + share * self.last

    def means(self) -> Float[Array, " A"]:
        """The mean of the outcome that decides in each arm, over all people; a missing record has its fixed value."""
        received = jnp.isfinite(self.values[:, 0])
        return self.probabilities(self.people / 2) @ jnp.where(received, self.values[:, 0], self.missing)

    @property
    def optimal_value(self) -> Float[Array, ""]:
        """The mean outcome of the best arm."""
        return self.means().max()

    def value(self, policy: TrialState) -> Float[Array, ""]:
        """The mean outcome of people who arrive under a plan of the trial."""
        block = jnp.minimum(policy.looks, policy.shares.shape[0] - 1)
        means = self.means()
        return jnp.where(policy.ended > 0, means[jnp.maximum(policy.serving, 0)], policy.shares[block] @ means)

    def enrol(
        self,
        trial: Trial,
        plan: Plan,
        block: Int[Array, ""],
        begin: Int[Array, ""],
        end: Int[Array, ""],
        channels: Mapping[str, AbstractChannel],
        key: AnyKey,
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """The summed terms of the people of a block who all arrive under one plan, and the numbers assigned."""
        state: TrialState = plan.policy
        A, C = self.first.shape
        shares = state.shares[jnp.minimum(block, state.shares.shape[0] - 1)]
        joint = shares[:, None] * self.probabilities((begin + end) / 2)
        drawn = multinomial(key, end - begin, joint.reshape(-1))
        arms, cases = jnp.repeat(jnp.arange(A), C), jnp.tile(jnp.arange(C), A)

        def terms(arm: Array, case: Array) -> dict[str, Array]:
            query = Plan(state, Assignment(arm, self.cells[case]))
            record = Outcomes(self.values[case])
            return {name: channel.statistic.contribution(record, query) for name, channel in channels.items()}

        each = jax.vmap(terms)(arms, cases)
        totals = jax.tree.map(lambda x: jnp.tensordot(drawn, x, axes=1), each)
        return totals, trial.count_assigned(arms, self.cells[cases], drawn)


@dataclass(frozen=True)
class Characteristics:
    """What simulated trials of one protocol did.

    Attributes:
        better: the share of trials that ended with each arm as better; practice first, which never is.
        worse: the share of trials in which each arm was closed.
        serving: the share of trials after which each arm is served.
        people: the mean number of people in closed blocks.
        covered: the share of trials in which the repeated intervals of all policies contain the true gain at all
            looks together.
        agree: whether, in every trial, an interval excludes 0 exactly if there is a verdict.
    """

    better: tuple[float, ...]
    worse: tuple[float, ...]
    serving: tuple[float, ...]
    people: float
    covered: float
    agree: bool


def characterise(protocol: Protocol, states: TrialState, gains: Sequence[float]) -> Characteristics:
    """Counts the verdicts of simulated trials.

    Arguments:
        states: the last states of the trials, with a leading axis.
        gains: the true gain of every policy over practice, with missing records at the value of the protocol, on the
            scale of the rescaled outcome.
    """
    s: Any = jax.tree.map(np.asarray, states)
    looks = np.arange(1, len(protocol.ends) + 1)
    covered, agree = np.ones(len(s.looks), bool), True
    for arm, gain in enumerate(gains, 1):
        d, se, upper, lower = (x[:, :, arm] for x in (s.judged.estimate, s.judged.se, s.judged.upper, s.judged.lower))
        last = np.where(s.closed[:, arm] > 0, s.closed[:, arm], s.looks)
        made = (looks[None] <= last[:, None]) & (se > 0)
        low = np.where(made & np.isfinite(upper), d - np.where(np.isfinite(upper), upper, 0.0) * se, -np.inf)
        high = np.where(made & np.isfinite(lower), d + np.where(np.isfinite(lower), lower, 0.0) * se, np.inf)
        covered &= ((low <= gain) & (gain <= high)).all(axis=1)
        above, below = (low > 0).any(axis=1), (high < 0).any(axis=1)
        # Two policies may be better at one look, and one of them is served.
        agree &= bool(np.array_equal(below, s.closed[:, arm] > 0) and (above >= (s.better == arm)).all())
        agree &= bool((s.better[above] > 0).all())
    arms = range(len(protocol.arms))
    return Characteristics(
        tuple(float((s.better == arm).mean()) if arm else 0.0 for arm in arms),
        tuple(float((s.closed[:, arm] > 0).mean()) for arm in arms),
        tuple(float((s.serving == arm).mean()) for arm in arms),
        float(protocol.ends[s.ended - 1].mean()),
        float(covered.mean()),
        agree,
    )


def _check_sizes(protocol: Protocol, world: Any, policies: Sequence[Any]) -> None:
    """Refuses a world in which a policy cannot act."""
    if not isinstance(world, OfflineEnv):
        raise ValueError(f"`{world.name}` is not a finite environment. Simulate the pilot by the means of its arms.")
    sizes = (world.horizon, world.num_states, world.num_actions)
    for arm, policy in zip(protocol.policies, policies, strict=True):
        if isinstance(policy, AssistedPolicy):
            fits = len(policy.advice) == world.num_states and bool((policy.advice < world.num_actions).all())
        else:
            fits = isinstance(policy, TabularPolicy) and policy.probabilities.shape == sizes
        if not fits:
            raise ValueError(
                f"The policy of the arm `{arm.name}` is not one for `{world.name}`, which has {sizes[1]} states, "
                f"{sizes[2]} actions and {sizes[0]} steps. Name the world that it was learnt for."
            )


def _at_bounds(mean: float) -> tuple[Float[np.ndarray, " 2"], Float[np.ndarray, " 2"]]:
    inside = min(max(mean, 0.0), 1.0)
    return np.array([0.0, 1.0]), np.array([1 - inside, inside])


def _levels(values: Float[np.ndarray, " n"]) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """The distribution of a sample; equal parts of it, with their means, if it has many different values."""
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) <= _LEVELS:
        return distinct, counts / counts.sum()
    parts = np.array_split(np.sort(values), _LEVELS)
    return np.array([part.mean() for part in parts]), np.array([len(part) for part in parts]) / len(values)


def _returns(episodes: Trajectory) -> Float[np.ndarray, " n"]:
    return np.asarray((jnp.asarray(episodes.rewards) * episodes.valid).sum(axis=-1))
