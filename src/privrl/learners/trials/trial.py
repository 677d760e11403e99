"""A randomised trial as an online learner: its plan holds the share of each arm, its releases are running sums by arm.

At the end of every public block (a look) the numbers of records received and the sums of outcomes of each arm are
released (`statistics/arm_sums.py`). The estimate, its standard error and the verdicts are functions of these releases
and of the public numbers of people assigned to each arm: intention to treat, stratified by phase. With S and R the
released sums, v the value of a missing record and c the centre, the sum of rescaled outcomes over all people assigned
is S + (c - v) R + v n, and

    d    = sum over phases k of (n_k/n) (m_1k - m_0k),      m_ak = sum G / n_ak
    se^2 = sum_k (n_k/n)^2 max(v_k (1/n_1k + 1/n_0k), v_1k/n_1k + v_0k/n_0k) + the variance of the privacy noise in d

(v = m (1 - m) with m clipped to [0, 1], corrected for the error of m in `_variance`, pooled over the arms in v_k; n_k
and n are of these two arms; phases in which either arm has no one are left out.)
"Better" at the first look with z = d/se > u, "worse" at the first with -z > w (`boundaries.py`). A policy that is worse
is closed; the shares of the others grow in proportion from the next block on, which begins a new phase. The trial ends
at the first "better", when every policy is closed, or after the last look.
"""

import functools
from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from privrl.contracts.learner import AbstractOnlineLearner, OnlineAsk, Plan, Releases
from privrl.contracts.policy import AbstractPolicy
from privrl.contracts.release import Declared
from privrl.learners.trials.boundaries import GRID, Boundaries, boundaries_of, expect, increments_of_noise
from privrl.learners.trials.protocol import Arm, Outcome, Protocol
from privrl.privacy.trust.channels import AbstractCuratorChannel
from privrl.statistics.arm_sums import ArmSums, Assignment

_ROUGH = 2**16  # simulated paths of a search
ALL = "all"
"""The name under which the numbers of all assigned people are kept, besides those by partition."""


class Judged(eqx.Module):
    """What was found at each look about each arm, when the look was made. Later looks change nothing."""

    estimate: Float[Array, "L A"]
    se: Float[Array, "L A"]
    upper: Float[Array, "L A"]
    lower: Float[Array, "L A"]


class TrialState(AbstractPolicy):
    """Where a trial stands: what was released and decided, and hence what people get. All of it is public.

    Attributes:
        looks: the number of looks so far.
        assigned: the number of people assigned in each block, by arm and group; `ALL` has one group.
        running: the released running sums (R, S) at each look, by arm and group, for each release.
        variance: the variance of the noise of S at each look, for each release.
        stratum: the stratum of each block: phases, and what follows the closing of an arm.
        closed: the number of the look at which an arm was closed; 0 if it is open.
        better: the arm that was better; 0 if none.
        ended: the number of the look at which the trial ended; 0 if it goes on.
        serving: the arm that new people get after the end; -1 before.
        shares: the share of each arm in blocks that begin under this plan.
        judged: what was found at each look.
    """

    looks: Int[Array, ""]
    assigned: dict[str, Float[Array, "L A _"]]
    running: dict[str, Float[Array, "L A _ 2"]]
    variance: dict[str, Float[Array, " L"]]
    stratum: Int[Array, " L"]
    closed: Int[Array, " A"]
    better: Int[Array, ""]
    ended: Int[Array, ""]
    serving: Int[Array, ""]
    shares: Float[Array, "L A"]
    judged: Judged

    def arrays(self) -> dict[str, np.ndarray]:
        return {name: np.asarray(getattr(self, name)) for name in ("closed", "better", "ended", "serving", "shares")}

    def shares_of(self, block: int) -> Float[np.ndarray, " A"]:
        """The share of each arm in a block whose first person arrives under this plan. They add up to 1."""
        return np.asarray(self.shares)[min(block, self.shares.shape[0] - 1)]

    def is_open(self, arm: int) -> bool:
        """Whether people are still randomised to this arm and counted."""
        return int(self.closed[arm]) == 0 and int(self.ended) == 0

    @property
    def served(self) -> int | None:
        """The arm that every new person gets because the trial has ended; `None` until then."""
        return int(self.serving) if int(self.ended) else None


class Trial(AbstractOnlineLearner):
    """A pilot: people are randomised to current practice or to a policy, and the difference is watched at public looks.

    Use the privatizer of the protocol: boundaries depend on its noise.

    >>> arms = (privrl.Arm("practice"), privrl.Arm("advice"))
    >>> protocol = privrl.Protocol("pilot", 1_000, arms, privrl.Outcome("survival"), epsilon=1.0, delta=1e-6)
    >>> privrl.Trial(protocol).schedule(1_000)[:3].tolist()
    [50, 100, 150]

    Arguments:
        protocol: what is fixed before the first person is enrolled.
    """

    protocol: Protocol = eqx.field(static=True)
    horizon: ClassVar[int] = 1

    @property
    def arms(self) -> tuple[str, ...]:
        return tuple(arm.name for arm in self.protocol.arms)

    def bounds(self) -> dict[str, object]:
        protocol = self.protocol
        return {
            "protocol sha256": protocol.sha256,
            "arms": list(self.arms),
            "outcomes": {outcome.name: [float(outcome.low), float(outcome.high)] for outcome in protocol.outcomes},
            "subgroups": {part.name: list(part.groups) for part in protocol.subgroups},
            "public": (
                "who takes part and when, and each person's arm and group; neighbours replace one person's record by "
                "another or by none and keep these"
            ),
        }

    def schedule(self, num_users: int) -> Int[np.ndarray, " L"]:
        if num_users != self.protocol.people:
            raise ValueError(f"The protocol is for {self.protocol.people} people, not {num_users}.")
        return self.protocol.ends

    def _sums(self, outcome: Outcome, which: int) -> ArmSums:
        return ArmSums(len(self.arms), float(outcome.low), float(outcome.high), outcome.centre, which)

    def statistics(self) -> dict[str, tuple[ArmSums, float]]:
        """The statistic of every release, and its share of mu^2. The first one decides."""
        protocol = self.protocol
        found = {outcome.name: (self._sums(outcome, i), outcome.share) for i, outcome in enumerate(protocol.outcomes)}
        for place, part in enumerate(protocol.subgroups):
            own = ArmSums(
                len(self.arms),
                float(protocol.outcome.low),
                float(protocol.outcome.high),
                protocol.outcome.centre,
                num_groups=len(part.groups),
                partition=place,
            )
            found[self.release_by(part.name)] = (own, part.share)
        rest = 1.0 - sum(share for _, share in found.values())
        return {name: (own, share or rest) for name, (own, share) in found.items()}

    def release_by(self, partition: str) -> str:
        """The name of the release of a partition."""
        return f"{self.protocol.outcome.name} by {partition}"

    def declare(self, num_blocks: int) -> tuple[Declared, ...]:
        return tuple(
            Declared(name, own, access="running", times=num_blocks, weight=share)
            for name, (own, share) in self.statistics().items()
        )

    def noise(self) -> float:
        """The variance of white noise in the sum of rescaled outcomes of one arm, under the privatizer of the
        protocol."""
        declared = self.declare(len(self.protocol.ends))
        privatizer = self.protocol.privatizer
        with jax.ensure_compile_time_eval():
            channel = privatizer.channel(declared[0], privatizer.calibrate(declared))
            assert isinstance(channel, AbstractCuratorChannel)
            scale = float(channel.scale)
        return scale**2 * _inflation(self.protocol.outcome, self.protocol.outcome.missing_value)

    def boundaries(self) -> tuple[Boundaries, ...]:
        """The boundaries of every policy; a function of the protocol."""
        return _boundaries(self.protocol)

    def init(self) -> TrialState:
        L, A = len(self.protocol.ends), len(self.arms)
        groups = {ALL: 1} | {part.name: len(part.groups) for part in self.protocol.subgroups}
        own = {name: statistic.num_groups for name, (statistic, _) in self.statistics().items()}
        return TrialState(
            looks=jnp.zeros((), int),
            assigned={name: jnp.zeros((L, A, number)) for name, number in groups.items()},
            running={name: jnp.zeros((L, A, number, 2)) for name, number in own.items()},
            variance={name: jnp.zeros(L) for name in own},
            stratum=jnp.zeros(L, int),
            closed=jnp.zeros(A, int),
            better=jnp.zeros((), int),
            ended=jnp.zeros((), int),
            serving=jnp.full((), -1),
            shares=jnp.asarray(self.protocol.shares),
            judged=Judged(jnp.zeros((L, A)), jnp.zeros((L, A)), jnp.full((L, A), jnp.inf), jnp.full((L, A), jnp.inf)),
        )

    def count_people(self, people: Sequence[tuple[int, str]]) -> dict[str, Float[Array, "A _"]]:
        """The numbers assigned to each arm and group, for `enrol`: the arm and the group of each person who counts."""
        arms = jnp.asarray([arm for arm, _ in people], int)
        cells = jnp.asarray([self.protocol.cells_of(group) for _, group in people], int)
        return self.count_assigned(arms, cells.reshape(len(people), -1), jnp.ones(len(people)))

    def count_assigned(
        self, arms: Int[Array, " n"], cells: Int[Array, "n P"], number: Float[Array, " n"]
    ) -> dict[str, Float[Array, "A _"]]:
        """The same from arrays, if `number` people have each arm and group."""
        zeros = jnp.zeros(len(self.arms))
        found = {ALL: zeros.at[arms].add(number)[:, None]}
        for place, part in enumerate(self.protocol.subgroups):
            empty = jnp.zeros((len(self.arms), len(part.groups)))
            found[part.name] = empty.at[arms, cells[:, place]].add(number)
        return found

    def enrol(self, memory: TrialState, assigned: dict[str, Float[Array, "A _"]], begun: Int[Array, ""]) -> TrialState:
        t = jnp.minimum(memory.looks, len(self.protocol.ends) - 1)
        kept = {name: memory.assigned[name].at[t].set(new) for name, new in assigned.items()}
        # A new stratum begins with a phase of the protocol, and with the first block after an arm was closed.
        phase = jnp.asarray(self.protocol.phase_of)[t]
        stratum = phase + ((memory.closed > 0) & (memory.closed <= begun)).sum()
        new = eqx.tree_at(lambda s: (s.assigned, s.stratum), memory, (kept, memory.stratum.at[t].set(stratum)))
        return _choose(memory.ended == 0, new, memory)

    def plan(
        self, memory: TrialState, released: Releases, ask: OnlineAsk, num_seen: Int[Array, ""]
    ) -> tuple[TrialState, Plan]:
        del ask
        goes_on = (num_seen > 0) & (memory.ended == 0)
        state = _choose(goes_on, self._look(memory, released), memory)
        example = Assignment(jnp.zeros((), int), jnp.zeros(len(self.protocol.subgroups), int))
        return state, Plan(state, example)

    def _look(self, state: TrialState, released: Releases) -> TrialState:
        """The state after one more look."""
        protocol, A, L = self.protocol, len(self.arms), len(self.protocol.ends)
        t = jnp.minimum(state.looks, L - 1)
        running, variance = {}, {}
        for name, (own, _) in self.statistics().items():
            units = jnp.asarray([own.record_weight, 1.0])[None, None]
            running[name] = state.running[name].at[t].set(released[name].value / units)
            noise = jnp.broadcast_to(released[name].noise.variance, own.shape)
            variance[name] = state.variance[name].at[t].set(noise.reshape(-1)[0])
        state = eqx.tree_at(lambda s: (s.running, s.variance), state, (running, variance))

        v = protocol.outcome.missing_value
        tables = self.boundaries()
        rows = []
        for arm in range(1, A):
            estimate, se, spread = self.compare(state, t, arm, (v, v))
            place = jnp.abs(jnp.log(jnp.maximum(spread, 1e-12)) - jnp.log(jnp.asarray(GRID))).argmin()
            table = tables[arm - 1]
            rows.append((estimate, se, jnp.asarray(table.upper)[t, place], jnp.asarray(table.lower)[t, place]))
        estimate, se, upper, lower = (jnp.stack(column) for column in zip(*rows, strict=True))
        z = jnp.where(se > 0, estimate / jnp.where(se > 0, se, 1.0), 0.0)
        upper, lower = jnp.where(se > 0, upper, jnp.inf), jnp.where(se > 0, lower, jnp.inf)
        is_open = state.closed[1:] == 0
        better, worse = is_open & (z > upper), is_open & (-z > lower)

        def put(kept: Float[Array, "L A"], new: Float[Array, " P"]) -> Float[Array, "L A"]:
            return kept.at[t, 1:].set(jnp.where(is_open, new, kept[t, 1:]))

        j = state.judged
        judged = Judged(put(j.estimate, estimate), put(j.se, se), put(j.upper, upper), put(j.lower, lower))
        looks = t + 1
        closed = state.closed.at[1:].set(jnp.where(worse, looks, state.closed[1:]))
        best = jnp.where(better, estimate - upper * se, -jnp.inf).argmax() + 1
        won = better.any()
        ended = won | (closed[1:] > 0).all() | (looks == L)
        serves = jnp.where(won & (protocol.after_better == "policy"), best, 0)
        left = jnp.asarray(protocol.shares) * (closed == 0)[None]
        return TrialState(
            looks=looks,
            assigned=state.assigned,
            running=running,
            variance=variance,
            stratum=state.stratum,
            closed=closed,
            better=jnp.where(won, best, 0),
            ended=jnp.where(ended, looks, 0),
            serving=jnp.where(ended, serves, -1),
            shares=left / left.sum(axis=1, keepdims=True),
            judged=judged,
        )

    def compare(
        self,
        state: TrialState,
        look: int | Int[Array, ""],
        arm: int,
        missing: tuple[float, float],
        release: str = "",
        group: int = 0,
    ) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
        """The estimate of one policy against practice at a look (from 0), its standard error, and the variance of one
        outcome that the look shows.

        Arguments:
            missing: the rescaled value of a missing record in the practice arm and in the policy's.
            release: the name of the release; the outcome that decides if empty.
            group: the number of the group, in the release of a partition.
        """
        name = release or self.protocol.outcome.name
        own, _ = self.statistics()[name]
        part = ALL if own.partition is None else self.protocol.subgroups[own.partition].name
        L = len(self.protocol.ends)
        upto = jnp.arange(L) <= look
        strata = len(self.protocol.phases or (0,)) + len(self.protocol.policies)
        inside = ((state.stratum[:, None] == jnp.arange(strata)[None]) & upto[:, None]).astype(float)
        pair = jnp.asarray([0, arm])
        n = jnp.einsum("lk,la->ka", inside, state.assigned[part][:, :, group][:, pair])
        sums = jnp.diff(state.running[name][:, pair, group], axis=0, prepend=0.0)
        values = jnp.asarray(missing)
        shift = own.centre - values
        total = jnp.einsum("lk,la->ka", inside, sums[..., 1] + shift[None] * sums[..., 0]) + values[None] * n

        both = (n > 0).all(axis=1)
        safe = jnp.where(both[:, None], n, 1.0)
        people = jnp.where(both, n.sum(axis=1), 0.0)
        weight = people / jnp.maximum(people.sum(), 1.0)
        m = total / safe
        estimate = (weight * (m[:, 1] - m[:, 0])).sum()
        increments = increments_of_noise(L)
        of_running = (np.cumsum(increments, axis=0) ** 2).sum(axis=1)
        white = state.variance[name][look] / jnp.asarray(of_running)[look] * (1 + shift**2 / own.record_weight**2)
        noise = white[None] * (jnp.einsum("lk,lj->kj", inside, increments) ** 2).sum(axis=1)[:, None]  # in `total`
        pooled = _variance(total.sum(axis=1), safe.sum(axis=1), noise.sum(axis=1))
        separate = (_variance(total, safe, noise) / safe).sum(axis=1)
        sampling = (weight**2 * jnp.maximum(pooled * (1 / safe).sum(axis=1), separate)).sum()
        spread = (weight**2 * jnp.where(both[:, None], 1 / safe, 0.0).sum(axis=1)).sum()

        through = jnp.einsum("lk,ka,lj->aj", inside, jnp.where(both[:, None], weight[:, None] / safe, 0.0), increments)
        se = jnp.sqrt(sampling + (white * (through**2).sum(axis=1)).sum())
        return estimate, jnp.where(both.any(), se, 0.0), sampling / jnp.where(spread > 0, spread, 1.0)


def _variance(total: Float[Array, "..."], n: Float[Array, "..."], noise: Float[Array, "..."]) -> Float[Array, "..."]:
    """The largest variance of one outcome in [0, 1] that goes with a noisy sum of n of them, at most 1/4.

    For the mean m of n outcomes of mean p and noise of variance s^2 in it, E m (1 - m) = p (1 - p) (1 - 1/n) - s^2.
    """
    m = jnp.clip(total / n, 0.0, 1.0)
    return jnp.minimum((m * (1 - m) + noise / n**2) * n / jnp.maximum(n - 1, 1), 0.25)


def find_people(
    practice: float,
    gain: float,
    *,
    epsilon: float,
    delta: float = 1e-6,
    power: float = 0.9,
    looks: int = 20,
    most: int = 1_000_000,
) -> int | None:
    """The smallest number of people, to two digits, with which a pilot shows a gain with probability `power`.

    The probability is rounded to whole percents. Two equal arms, outcomes at one of two bounds. Reads no data.

    >>> from privrl.learners.trials.trial import find_people
    >>> find_people(0.625, 0.1, epsilon=1.0)
    1400

    Arguments:
        practice, gain: the mean outcome in practice and the policy's gain, as shares of the range of the outcome.
        epsilon, delta: the budget of the pilot.
        most: the largest number to consider.

    Returns:
        the number, or `None` if `most` people are not enough.
    """
    if not (0 <= practice <= 1 and gain > 0 and practice + gain <= 1 and 0 < power < 1):
        raise ValueError(
            f"`practice` is {practice}, `gain` {gain} and `power` {power}. Give shares of the range of the outcome, "
            "`gain` > 0 and `practice` + `gain` <= 1, and a probability."
        )

    def reaches(people: int) -> bool:
        arms = (Arm("practice"), Arm("policy"))
        protocol = Protocol("plan", people, arms, Outcome("outcome"), epsilon, delta, looks=min(looks, people))
        found = expect(protocol, Trial(protocol).noise(), practice, gain, number=_ROUGH)
        return round(found.better, 2) >= power

    sizes = [digits * 10**k for k in range(1, 8) for digits in range(10, 100) if 100 <= digits * 10**k <= most]
    low, high = 0, len(sizes)
    while low < high:  # the first size that is enough
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(sizes[middle]) else (middle + 1, high)
    return sizes[low] if low < len(sizes) else None


def _inflation(outcome: Outcome, missing: float) -> float:
    """The variance of S + (c - v) R for noise of variance 1 in S."""
    reach = max(outcome.centre, 1 - outcome.centre)
    return 1.0 + (outcome.centre - missing) ** 2 / (1.0 - reach**2)


def _choose(condition: Bool[Array, ""], new: TrialState, old: TrialState) -> TrialState:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


@functools.lru_cache(maxsize=64)
def _boundaries(protocol: Protocol) -> tuple[Boundaries, ...]:
    return boundaries_of(protocol, Trial(protocol).noise())
