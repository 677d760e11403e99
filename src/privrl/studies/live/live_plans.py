"""The plans of a live study: a block closes, its exact sums are released with noise, once, and the learner plans
again.

Plan 0 exists before the first person arrives; plan b + 1 follows from the releases of blocks 0 to b. It takes effect
when block b closes, or one block later if planning takes long (`delay`). All plans are kept, because people act for
their whole episode on the plan that was in force when they arrived. The people of a block may therefore have acted on
several plans. Their terms are kept apart, plan by plan. Whether a learner can use the sum over all plans is a public
fact about the learner (`one_plan_per_block`). If it cannot, only the people who acted on the plan of the majority
count, and which plan that is follows from arrivals, which are public.
"""

import functools
import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Int64, PRNGKeyArray

from privrl.contracts.learner import AbstractOnlineLearner, Plan
from privrl.contracts.statistic import AbstractStatistic
from privrl.learners.trials.trial import Trial
from privrl.privacy.noise.bounding import LatticeBounds, round_each
from privrl.privacy.noise.random_words import Words
from privrl.privacy.store.errors import BurntError
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.channels import AbstractCuratorChannel
from privrl.privacy.trust.exact_channels import ExactChannel, Noisy
from privrl.privacy.trust.padded_batches import batches
from privrl.privacy.trust.privatizers import PairingError
from privrl.studies.live.arrivals import AbstractArrivals
from privrl.studies.loop import State, planned, publish, strongly_typed
from privrl.studies.public_key import public_key
from privrl.studies.simulation.simulated_loop import SimulationKeys
from privrl.studies.study import Study


class LivePlans:
    """All releases and plans that this process knows; `catch_up` brings them up to date.

    Arguments:
        learner, study: the learner that plans, and what was declared and calibrated for it.
        arrivals: which person is in which block, and when blocks close.
        store: where sums and releases are.
        blank: the form of a record, given a plan.
        key: seeded noise for simulations.
        delay: the number of blocks by which plans lag behind, 0 or 1. With 1, the plan after block b takes effect when
            block b + 1 closes (the last plan takes effect at once). It is computed in a thread of its own meanwhile; if
            it is not ready then, the caller waits. `run(delay=1)` simulates this.

    **Formal guarantee.** One person's record is in the sums of one block, with the statistic's own bound for
    whatever plan they acted on. A missing record adds nothing, and zero is at most as far from any record as
    another record is (a statistic for which this fails is refused). So replacing a record moves the encoded sums of
    each channel by at most its sensitivity. If a person may contribute m records, they contribute m terms, one in
    each block in which they took part, each within the single-record bound. The plan in force is the one with number
    `current`, a function of the number of closed blocks, which is public. A plan is a function of releases, so after a
    crash it is computed again. How long that takes depends on releases, too.
    """

    def __init__(
        self,
        learner: AbstractOnlineLearner,
        study: Study,
        arrivals: AbstractArrivals,
        store: ReleaseStore,
        blank: Callable[[Plan], object],
        key: PRNGKeyArray | None,
        delay: int = 0,
    ) -> None:
        self._learner, self._arrivals, self._store, self._key = learner, arrivals, store, key
        self._closed = 0
        self._planner = ThreadPoolExecutor(1, "planner") if delay else None
        self._pending: Future[tuple[State, Plan]] | None = None
        assert study.ends is not None
        blocks = len(study.ends)
        simulated = study.channels()
        seeded = None if key is None else SimulationKeys.of(key).plans
        self._sampled = public_key(store, "plans", seeded) if learner.plans_at_random else None
        start, zero = State.first(learner, simulated), jnp.zeros((), int)
        first = (learner, start._replace(kept={}), start.memory, zero, zero, self._plan_key(0), None)
        self._first = functools.partial(_next_plan, *first)
        self._made = [self._first()]
        form = (study.privatizer.adjacency, study.participation, blank(self[0]), self[0])
        self.channels: dict[str, ExactChannel] = {}
        for name, channel in simulated.items():
            assert isinstance(channel, AbstractCuratorChannel)
            exact = ExactChannel.from_channel(channel, blocks, study.ledger.parameter(name), *form)
            exact.check_room(study.participation.times * arrivals.num_places)
            self.channels[name] = exact
        if study.participation.times == 1:
            _check_absence(self.channels)
        self._kept: dict[str, object] = {name: channel.init() for name, channel in self.channels.items()}  # secret

    def __getitem__(self, number: int) -> Plan:
        if number == len(self._made):
            self._await_plan()
        return self._made[number][1]

    @property
    def closed(self) -> int:
        """The number of blocks that are closed and released."""
        return self._closed

    @property
    def current(self) -> int:
        """The number of the plan in force, on which the next person to arrive acts."""
        return self._arrivals.plan_after(self._closed)

    def measure(self) -> float:
        """The seconds that a plan takes on this machine, without compilation."""
        began = time.perf_counter()
        jax.block_until_ready(self._first())
        return time.perf_counter() - began

    def check_lattices(self) -> None:
        """Refuses a computer that would round sums differently from the one that began them."""
        for name, channel in self.channels.items():
            if self._store.fact(f"lattice of {name}", channel.fingerprint) != channel.fingerprint():
                raise ValueError(
                    f"This computer rounds the public numbers of `{name}` otherwise than the one that began this "
                    "store, so sums cannot be continued here. Nothing was counted. Go on where the study began."
                )

    def limits(self, blocks: int) -> dict[str, float]:
        """The largest number of releases of each statistic."""
        return {_pool(name): float(blocks) for name in self.channels}

    def to_steps(
        self, records: object, plan: int, query: object = None
    ) -> tuple[Int64[np.ndarray, "B entries"], Bool[np.ndarray, " B"]]:
        """Every person's terms of all statistics, concatenated, for the plan that they acted on, in steps of the
        lattice; and whether all terms are finite.

        Arguments:
            records: with a batch axis. A person's whole numbers do not depend on the other people in the batch
                (tests compare).
            query: what the records answer, if it is not the query of the plan.
        """
        acted = self[plan] if query is None else Plan(self[plan].policy, query)
        grids = tuple((channel.statistic, channel.lattice.bounds) for channel in self.channels.values())
        parts = []
        for rows, some in batches(len(jax.tree.leaves(records)[0])):
            found = _terms(grids, jax.tree.map(lambda x: x[rows], records), acted)  # noqa: B023
            parts.append([np.asarray(x)[:some] for x in found])
        units, finite = (np.concatenate(column) for column in zip(*parts, strict=True))
        return units, finite

    def catch_up(self) -> None:
        """Closes every block whose time has come, makes or reads its releases, and plans."""
        while self._arrivals.closes(self.closed):
            block = self.closed
            self._await_plan()
            plans = self._arrivals.plans(block)
            for plan in self._arrivals.summed(block):
                self._store.seal(self._arrivals.sum_name(block, plan))
            state = self._made[-1][0]._replace(kept=self._kept)
            state = publish(self.channels, state, self._totals(block), block, functools.partial(self._noise, block))
            acted = _of_most(plans)
            others = jnp.asarray(self._arrivals.size(block) - plans[acted])
            published, seen = self._made[acted][0].memory, jnp.asarray(self._arrivals.end(block))
            known = (published, others, seen, self._plan_key(block + 1), self._enrolled(block))
            compute = functools.partial(_next_plan, self._learner, state._replace(kept={}), *known)
            if self._planner is None:
                self._made.append(compute())
            else:
                self._pending = self._planner.submit(_complete, compute)
            # After the plan: an interrupted attempt leaves nothing behind.
            self._kept, self._closed = state.kept, block + 1

    def _await_plan(self) -> None:
        """Waits for the plan that is being computed. It takes effect now."""
        if self._pending is not None:
            self._made.append(self._pending.result())
            self._pending = None

    def _enrolled(self, block: int) -> tuple[object, Int[Array, ""]] | None:
        """In a trial, the numbers of people assigned in a closed block, and the plan under which it began. Public."""
        if not isinstance(self._learner, Trial):
            return None
        return self._learner.count_people(self._arrivals.assigned(block)), jnp.asarray(self._arrivals.begun(block))

    def _plan_key(self, number: int) -> PRNGKeyArray | None:
        """Public randomness for one plan: the same in every process, and after a restart."""
        return None if self._sampled is None else jax.random.fold_in(self._sampled, number)

    def _noise(self, block: int, name: str) -> Noisy:
        """Adds noise to an encoded sum after a closed block. The first process draws it; all others read the same
        draw.
        """
        channel = self.channels[name]

        def noisy(encoded: Callable[[], Int64[np.ndarray, "..."]]) -> Int64[np.ndarray, "..."]:
            number = sorted(self.channels).index(name)  # as in a compiled simulation

            def draw() -> Int64[np.ndarray, "..."]:
                source = Words() if self._key is None else SimulationKeys.of(self._key).white(number, block, 0)
                return channel.add_noise(encoded(), source)

            try:
                return self._store.release(
                    f"{name}/{block}", _pool(name), 1.0, draw, distribution=channel.lattice.to_bytes()
                )
            except BurntError as error:
                raise BurntError(
                    f"Release {block} of `{name}` was burnt by a crash, and later ones build on it. Open the store "
                    "with `after_crash='redraw'`: the first draw was never published, so drawing again is safe."
                ) from error

        return noisy

    def _totals(self, block: int) -> dict[str, Callable[[], Int64[np.ndarray, "..."]]]:
        """Returns a function that computes the exact sums of a closed block; missing people have added nothing."""
        arrivals = self._arrivals
        chosen = [_of_most(arrivals.plans(block))] if self._learner.one_plan_per_block else arrivals.summed(block)
        sizes = [math.prod(channel.shape) for channel in self.channels.values()]

        @functools.cache
        def parts() -> list[Int64[np.ndarray, " entries"]]:
            totals = [self._store.total(self._arrivals.sum_name(block, plan)) for plan in chosen]
            added = sum((total for total in totals if total is not None), np.zeros(sum(sizes), np.int64))
            return np.split(added, np.cumsum(sizes)[:-1])

        def part(number: int, shape: tuple[int, ...]) -> Int64[np.ndarray, "..."]:
            return parts()[number].reshape(shape)

        return {
            name: functools.partial(part, number, channel.shape)
            for number, (name, channel) in enumerate(self.channels.items())
        }


def _complete(compute: Callable[[], tuple[State, Plan]]) -> tuple[State, Plan]:
    return jax.block_until_ready(compute())


def _pool(name: str) -> str:
    return f"releases of {name}"


def _of_most(plans: dict[int, int]) -> int:
    """The plan on which most people of a block acted, the newest of several; a choice from public facts."""
    return max(plans, key=lambda plan: (plans[plan], plan))


@eqx.filter_jit
def _terms(
    grids: tuple[tuple[AbstractStatistic, LatticeBounds], ...], records: Any, plan: Plan
) -> tuple[Int64[Array, "B entries"], Bool[Array, " B"]]:
    """The terms of several people, computed separately."""
    found = [round_each(statistic, records, plan, bounds) for statistic, bounds in grids]
    units = [units.reshape(len(units), -1) for units, _ in found]
    return jnp.concatenate(units, axis=1), jnp.stack([finite for _, finite in found]).all(axis=0)


def _check_absence(channels: dict[str, ExactChannel]) -> None:
    for name, channel in channels.items():
        bound = channel.statistic.l1 if channel.lattice.kind == "l1" else channel.statistic.l2
        if bound("add-remove") > bound("replace-one"):
            raise PairingError(
                f"One person's term of `{name}` can be larger than the distance of two, so a record that is missing "
                "would show. Centre the statistic, so that its own norm is at most its replace-one sensitivity."
            )


def _next_plan(learner: AbstractOnlineLearner, *known: Any) -> tuple[State, Plan]:
    """The next plan, by a program that is compiled once."""
    return strongly_typed(_compiled_plan(learner, *strongly_typed(known)))


@eqx.filter_jit
def _compiled_plan(
    learner: AbstractOnlineLearner,
    state: State,
    published: Any,
    others: Int[Array, ""],
    seen: Int[Array, ""],
    key: PRNGKeyArray | None,
    enrolled: tuple[Any, Int[Array, ""]] | None,
) -> tuple[State, Plan]:
    """The plan after a block whose people acted on the plan that came with `published`, except for `others` of them."""
    memory = learner.acted_on(state.memory, published, others)
    if isinstance(learner, Trial) and enrolled is not None:
        memory = learner.enrol(memory, *enrolled)
    return planned(learner, state._replace(memory=memory), seen, key=key)
