"""The plans of a local study, one after another, each made from the sums of the blocks of reports before it.

Blocks fill by count, in the order in which reports arrive. Reports are private by themselves, so the block that a
report enters reveals nothing more. (*When* a device sends its report is not covered: send at a time that does not
depend on the record.) A full block's sums are kept for good, so every server on a store makes the same plans,
whenever it is started, in time that does not depend on the number of reports. Reports that answer an older plan are
read with that plan's query.
"""

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Int64, PRNGKeyArray

from privrl.contracts.learner import AbstractLearner, AbstractOnlineLearner, Plan
from privrl.mdp.types import TabularPolicy
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.local_channels import AbstractLocalChannel, AbstractReports
from privrl.privacy.trust.privatizers import AbstractPrivatizer, Local, PairingError
from privrl.privacy.trust.symbol_channels import SymbolReports
from privrl.recipes.pairing import AnyWorld, BudgetArguments, resolve_pair
from privrl.studies.loop import State, planned, publish, strongly_typed
from privrl.studies.public_key import public_key
from privrl.studies.study import Study, participation_of

_PLANS = 2**32 - 1  # what is folded into the key of ties for plans; no block has this number


def local_pair(
    learner: str | AbstractLearner,
    privatizer: AbstractPrivatizer | None,
    world: str | AnyWorld | None,
    budget: BudgetArguments,
) -> tuple[AbstractOnlineLearner, Local]:
    """The learner and the privatizer of devices and their server, as `resolve_pair` finds them."""
    found, trust = resolve_pair(learner, privatizer, world, budget, "online", "control")
    if not isinstance(trust, Local):
        raise TypeError(
            f"`Client` and `Server` need `Local(...)`, not `{type(trust).__name__}`: with a trusted curator, use "
            "`privrl.run` or `privrl.fit`."
        )
    if not isinstance(found, AbstractOnlineLearner):
        raise TypeError(
            f"`{type(found).__name__}` learns from a table, not while people take part. Use an online learner such as "
            "`UCBVI`."
        )
    return found, trust


def local_study(
    learner: AbstractOnlineLearner, privatizer: Local, max_episodes_per_unit: int = 1
) -> tuple[Study, dict[str, AbstractLocalChannel]]:
    """The study in which each person sends `max_episodes_per_unit` messages, and its channels."""
    study, channels = Study.local(learner, privatizer, participation_of(max_episodes_per_unit, 0)), {}
    for name, channel in study.channels().items():
        assert isinstance(channel, AbstractLocalChannel)
        channels[name] = channel
    return study, channels


def plan_form(learner: AbstractOnlineLearner, privatizer: Local) -> Plan:
    """The shapes of a plan, without computing one."""
    return _plan_form(_Same(learner), privatizer)


class OpenBlockError(Exception):
    """The block is not full yet, so it has no sums."""


class LocalPlans:
    """All plans so far, and the block that takes reports now."""

    def __init__(
        self,
        learner: AbstractOnlineLearner,
        reports: Mapping[str, AbstractReports],
        num_users: int,
        store: ReleaseStore,
        key: PRNGKeyArray | None,
    ) -> None:
        self._learner, self._reports, self._store = learner, reports, store
        self._ends = [0, *(int(end) for end in learner.blocks(num_users))]
        self._ties = public_key(store, "ties", key)  # how ties are broken
        self._sampled = jax.random.fold_in(self._ties, _PLANS)  # what plans are sampled with
        self._state = State.first(learner, reports)
        self._plans: list[Plan] = []
        self._add_plan(self._state)
        self.refresh()

    def __getitem__(self, number: int) -> Plan:
        return self._plans[number]

    def __len__(self) -> int:
        return len(self._plans)

    @property
    def finished(self) -> bool:
        """Whether all people have reported."""
        return len(self._plans) == len(self._ends)

    @property
    def sum_name(self) -> str:
        """The name of the sum that takes reports now; that of the last block once all people have reported."""
        return f"block {self._block}"

    @property
    def size(self) -> int:
        """The number of reports that the block takes."""
        return self._ends[self._block + 1] - self._ends[self._block]

    @property
    def num_reports(self) -> int:
        """The number of reports counted by all servers on this store."""
        return self._ends[-1] if self.finished else self._ends[self._block] + self._store.count(self.sum_name)

    @property
    def _block(self) -> int:
        return min(len(self._plans), len(self._ends) - 1) - 1

    def refresh(self) -> bool:
        """Takes in blocks that have become full and makes the plans after them. Returns whether there was one."""
        before = len(self._plans)
        while not self.finished:
            try:
                kept = self._store.fact(f"sums of {self.sum_name}", self._sums)
            except OpenBlockError:
                break
            self._publish(np.frombuffer(kept, "<i8").astype(np.int64))
        return len(self._plans) > before

    def _sums(self) -> bytes:
        if self._store.count(self.sum_name) < self.size:
            raise OpenBlockError
        total = self._store.total(self.sum_name)
        assert total is not None  # a full block has reports
        return total.astype("<i8").tobytes()

    def _publish(self, units: Int64[np.ndarray, " n"]) -> None:
        parts = np.split(units, np.cumsum([reports.length for reports in self._reports.values()])[:-1])
        totals = dict(zip(self._reports, parts, strict=True))
        self._add_plan(publish(self._reports, self._state, totals, self._block, _no_noise))

    def _add_plan(self, after: State) -> None:
        """Plans from the releases so far; an interrupted attempt leaves nothing behind."""
        number = len(self._plans)
        by_symbol = any(isinstance(reports, SymbolReports) for reports in self._reports.values())
        public = self._ties if by_symbol else None, self._sampled
        seen, plans = (jnp.asarray(count) for count in (self._ends[number], number))
        known = strongly_typed((after._replace(kept={}), seen, plans, *public))
        state, plan = strongly_typed(_next_plan(self._learner, *known))
        digest = hashlib.sha256(b"".join(leaf.tobytes() for leaf in leaves_of(plan))).digest()
        if self._store.fact(f"digest of plan {number}", lambda: digest) != digest:
            raise PairingError(
                f"This server makes another plan {number} than the one that was published, so it would misread "
                "reports. Run servers of one study on one version of privrl and JAX and one kind of machine."
            )
        self._state = state._replace(kept=after.kept)
        self._plans.append(plan)


def leaves_of(plan: Plan) -> tuple[np.ndarray, ...]:
    """The arrays of a plan."""
    return tuple(np.asarray(leaf) for leaf in jax.tree.leaves(plan))


def plan_arrays(plan: Plan) -> tuple[np.ndarray, ...]:
    """The arrays of a plan as they are sent; a deterministic policy is sent as its actions `[H, S]`."""
    policy, *rest = leaves_of(plan)
    if isinstance(plan.policy, TabularPolicy) and np.isin(policy, (0.0, 1.0)).all():
        policy = policy.argmax(axis=-1).astype(np.int64)
    return policy, *rest


def plan_of_arrays(arrays: tuple[np.ndarray, ...], form: Plan) -> Plan:
    """The plan of a known form that `plan_arrays` encoded; raises `ValueError` if the arrays do not fit."""
    leaves, structure = jax.tree.flatten(form)
    if arrays and isinstance(form.policy, TabularPolicy) and arrays[0].dtype.kind == "i":
        *axes, num_actions = leaves[0].shape
        if list(arrays[0].shape) != axes or not ((arrays[0] >= 0) & (arrays[0] < num_actions)).all():
            raise ValueError("an action is missing, or lies outside the range of this world.")
        arrays = (np.eye(num_actions)[arrays[0]], *arrays[1:])
    if [leaf.shape for leaf in leaves] != [array.shape for array in arrays]:
        raise ValueError("its arrays have other shapes; client and server must have the same one.")
    made = [jnp.asarray(array, leaf.dtype) for array, leaf in zip(arrays, leaves, strict=True)]
    return jax.tree.unflatten(structure, made)


@dataclass(frozen=True, eq=False)
class _Same:
    """A learner as the key of a cache, compared by identity, because its arrays have no hash."""

    learner: AbstractOnlineLearner

    def __hash__(self) -> int:
        return id(self.learner)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.learner is self.learner


@functools.lru_cache(maxsize=8)
def _plan_form(same: _Same, privatizer: Local) -> Plan:
    channels = local_study(same.learner, privatizer)[1]

    def first() -> Plan:
        return planned(same.learner, State.first(same.learner, channels), jnp.zeros((), int), key=jax.random.key(0))[1]

    return jax.eval_shape(first)


@eqx.filter_jit
def _next_plan(
    learner: AbstractOnlineLearner,
    state: State,
    seen: Int[Array, ""],
    number: Int[Array, ""],
    ties: PRNGKeyArray | None,
    sampled: PRNGKeyArray,
) -> tuple[State, Plan]:
    """Makes plan `number` after this number of reports, with its own randomness from the public keys."""
    broken = None if ties is None else jax.random.fold_in(ties, number)
    return planned(learner, state, seen, key=jax.random.fold_in(sampled, number), ties=broken)


def _no_noise(name: str) -> Any:
    del name  # devices have added it
