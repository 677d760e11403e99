"""The plans of a live study: a block closes, its exact sums are released with noise, once, and the learner plans again.

Plan 0 is there before anybody comes; plan b + 1 follows from the releases of blocks 0 to b. All plans are kept, because
people act for their whole stay on the one that was out when they arrived. So the people of a block may have acted on
several plans. Their terms are kept apart, plan by plan; whether a learner can read their sum is a public fact about the
learner (`one_plan_per_block`), and if it cannot, only those count who acted on the plan of most of them, which is a
public fact about arrivals.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Int64, PRNGKeyArray

from privrl.contracts.learner import AbstractOnlineLearner, Plan
from privrl.contracts.release import Release
from privrl.privacy.continual.exact import ExactStream
from privrl.privacy.noise.words import Words
from privrl.privacy.store.errors import BurntError
from privrl.privacy.store.store import ReleaseStore
from privrl.privacy.trust.privatizers import PairingError
from privrl.studies.arrivals import AbstractArrivals
from privrl.studies.public_key import public_key
from privrl.studies.run import SimulationKeys
from privrl.studies.study import Study


class LivePlans:
    """What was released and planned so far, as far as this process knows; `catch_up` brings it up to date.

    Arguments:
        learner, study: who plans, and what was declared and calibrated for it.
        arrivals: who is in which block, and when blocks close.
        store: where sums and releases are.
        blank: what a record looks like, given a plan.
        key: seeded noise for simulations.

    **Formal guarantee.** One person's record is in the sums of one block, with the statistic's own bound for whatever
    plan they acted on; a record that is missing adds nothing, which is at most as far from any record as another one is
    (refused otherwise). So replacing a record moves the encoded sums of each stream by at most its sensitivity.
    """

    def __init__(
        self,
        learner: AbstractOnlineLearner,
        study: Study,
        arrivals: AbstractArrivals,
        store: ReleaseStore,
        blank: Callable[[Plan], Any],
        key: PRNGKeyArray | None,
    ) -> None:
        self._learner, self._arrivals, self._store, self._key = learner, arrivals, store, key
        channels, blocks = study.channels(), len(learner.blocks(arrivals.num_places))
        self._released = {n: release for n, channel in channels.items() if (release := channel.empty()) is not None}
        seeded = None if key is None else SimulationKeys.of(key).plans
        self._sampled = public_key(store, "plans", seeded) if learner.plans_at_random else None
        start, nobody = learner.init(), jnp.zeros((), int)
        first = _next_plan(learner, start, start, nobody, dict(self._released), nobody, self._plan_key(0))
        self._made = [first]  # memory and plan
        form = (study.privatizer.adjacency, blank(self[0]), self[0])
        self.streams = {
            name: ExactStream(channel, blocks, study.ledger.parameter(name), *form)
            for name, channel in channels.items()
        }
        _check_absence(self.streams)
        for stream in self.streams.values():
            stream.check_room(arrivals.num_places)
        self._sums: dict[int, Int64[np.ndarray, " entries"]] = {}  # of closed blocks, exact: they never leave here
        self._noisy: dict[str, list[Int64[np.ndarray, "..."]]] = {name: [] for name in self.streams}

    def __getitem__(self, number: int) -> Plan:
        return self._made[number][1]

    @property
    def closed(self) -> int:
        """How many blocks are closed and released; the newest plan has this number."""
        return len(self._made) - 1

    def check_lattices(self) -> None:
        """Refuses a computer on which sums that were begun elsewhere would be rounded otherwise."""
        for name, stream in self.streams.items():
            if self._store.fact(f"lattice of {name}", stream.fingerprint) != stream.fingerprint():
                raise ValueError(
                    f"This computer rounds the public numbers of `{name}` otherwise than the one that began this "
                    "store, so sums cannot be continued here. Nothing was counted. Go on where the study began."
                )

    def limits(self, blocks: int) -> dict[str, float]:
        """How often each stream may be released."""
        return {_pool(name): float(blocks) for name in self.streams}

    def units(self, record: Any, plan: int) -> Int64[np.ndarray, " entries"]:
        """One person's terms of all statistics, end to end, as the plan that they acted on asks for them."""
        return np.concatenate([stream.units(record, self[plan]).ravel() for stream in self.streams.values()])

    def catch_up(self) -> None:
        """Closes every block whose time has come, makes or reads its releases, and plans."""
        while self._arrivals.closes(self.closed):
            block = self.closed
            plans = self._arrivals.plans(block)
            for plan in plans:
                self._store.seal(self._arrivals.sum_name(block, plan))
            noisy = {name: self._release(name, block) for name in self.streams}
            for name, stream in self.streams.items():
                self._noisy[name].append(noisy[name])
                self._released[name] = stream.release(self._noisy[name])
            acted = _of_most(plans)
            others = jnp.asarray(self._arrivals.size(block) - plans[acted])
            memory, published = self._made[-1][0], self._made[acted][0]
            seen = jnp.asarray(self._arrivals.end(block))
            known = (others, dict(self._released), seen, self._plan_key(block + 1))
            self._made.append(_next_plan(self._learner, memory, published, *known))

    def _plan_key(self, number: int) -> PRNGKeyArray | None:
        """Public randomness for one plan: the same in every process, and after a restart."""
        return None if self._sampled is None else jax.random.fold_in(self._sampled, number)

    def _release(self, name: str, block: int) -> Int64[np.ndarray, "..."]:
        """The noisy encoded sum after a closed block: drawn by whoever comes first, the same for everybody."""
        number, stream = list(self.streams).index(name), self.streams[name]

        def draw() -> np.ndarray:
            encoded = stream.encoded(np.stack([self._total(name, t) for t in range(block + 1)]))
            if self._key is None:
                return stream.noisy(encoded, Words())
            return stream.noisy_in_simulation(encoded, SimulationKeys.of(self._key).white(number, block, 0))

        try:
            return self._store.release(f"{name}/{block}", _pool(name), 1.0, draw, law=stream.lattice.to_bytes())
        except BurntError as error:
            raise BurntError(
                f"Release {block} of `{name}` was burnt by a crash, and later ones build on it. Open the store with "
                "`after_crash='redraw'`: nobody has seen the first draw, so drawing again is safe."
            ) from error

    def _total(self, name: str, block: int) -> Int64[np.ndarray, "..."]:
        """The exact sum of a closed block, of one statistic; whoever is missing has added nothing."""
        sizes = {n: int(np.prod(stream.shape, dtype=int)) for n, stream in self.streams.items()}
        if block not in self._sums:
            plans = self._arrivals.plans(block)
            chosen = [_of_most(plans)] if self._learner.one_plan_per_block else list(plans)
            totals = [self._store.total(self._arrivals.sum_name(block, plan)) for plan in chosen]
            added = [total for total in totals if total is not None]
            self._sums[block] = sum(added, np.zeros(sum(sizes.values()), np.int64))
        begin = sum(list(sizes.values())[: list(sizes).index(name)])
        return self._sums[block][begin : begin + sizes[name]].reshape(self.streams[name].shape)


def _pool(name: str) -> str:
    return f"releases of {name}"


def _of_most(plans: dict[int, int]) -> int:
    """The plan that most people of a block acted on, the newest of several; a choice from public facts."""
    return max(plans, key=lambda plan: (plans[plan], plan))


def _check_absence(streams: dict[str, ExactStream]) -> None:
    for name, stream in streams.items():
        bound = stream.statistic.l1 if stream.lattice.kind == "l1" else stream.statistic.l2
        if bound("add-remove") > bound("replace-one"):
            raise PairingError(
                f"One person's term of `{name}` can be larger than the distance of two, so a record that is missing "
                "would show. Centre the statistic, so that its own norm is at most its replace-one sensitivity."
            )


@eqx.filter_jit
def _next_plan(
    learner: AbstractOnlineLearner,
    memory: Any,
    published: Any,
    others: Int[Array, ""],
    released: dict[str, Release],
    seen: Int[Array, ""],
    key: PRNGKeyArray | None,
) -> tuple[Any, Plan]:
    """The plan after a block that acted on the plan which came with `published`, but for `others` of its people."""
    return learner.next_plan(learner.acted_on(memory, published, others), released, _no_question, seen, key=key)


def _no_question(name: str, index: int, question: Any) -> Any:
    raise PairingError(f"`{name}` cannot be asked for: `Agent` keeps sums only.")
