"""What an online learner really publishes and asks, written down over a few blocks: the surface that is attacked."""

import functools
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from privrl.audit.statistics import Asked
from privrl.contracts.learner import AbstractOnlineLearner
from privrl.contracts.release import Release
from privrl.privacy.accounting.ledger import Ledger
from privrl.privacy.noise.sources import standard_normal
from privrl.privacy.trust.channels import AbstractChannel, RoundsChannel
from privrl.privacy.trust.local_channels import SymbolChannel
from privrl.privacy.trust.privatizers import AbstractPrivatizer, PairingError
from privrl.privacy.trust.shuffled import Batched
from privrl.studies.run import SimulationKeys, asker

_USERS = (3, 6, 12, 25, 50, 100, 200, 400, 1000, 2000, 4000, 8000, 16000)


@dataclass(frozen=True)
class RunTranscript:
    """The plans of one short run and every question that they asked; `ends` are the public ends of the blocks."""

    learner: AbstractOnlineLearner
    privatizer: AbstractPrivatizer
    ledger: Ledger
    channels: dict[str, AbstractChannel]
    ends: tuple[int, ...]
    plans: tuple[Any, ...] = field(repr=False)
    questions: tuple[tuple[str, int, int, Any], ...] = field(repr=False)

    def asked(self, block: int) -> tuple[Asked, ...]:
        """What is released about a person of this block: streamed statistics once, later questions one by one."""
        plan = self.plans[block]
        streamed = [
            Asked(name, channel.statistic, plan, block=block)
            for name, channel in self.channels.items()
            if not isinstance(channel, RoundsChannel)
        ]
        later = [
            Asked(name, self.channels[name].statistic, plan, question, t, index)
            for name, t, index, question in self.questions
            if t > block
        ]
        return (*streamed, *later)


def short_run(learner: AbstractOnlineLearner, privatizer: AbstractPrivatizer) -> tuple[int, ...]:
    """The ends of the blocks of the shortest run with three blocks (or fewer, where no run has more) that is served."""
    refusal: PairingError | None = None
    best: tuple[int, ...] | None = None
    for users in _USERS:
        ends = learner.blocks(users)
        declared = learner.declare(len(ends))
        smallest = max([d.smallest for d in declared if isinstance(d, Batched)], default=1)
        try:
            privatizer.check(type(learner).__name__, declared)
        except PairingError as error:
            refusal = error
            continue
        if np.diff(ends, prepend=0).min() < smallest or (best is not None and len(ends) <= len(best)):
            continue
        best = tuple(int(end) for end in ends)
        if len(best) >= 3:
            break
    if best is None:
        raise refusal or PairingError(f"`{type(learner).__name__}` has no short run to attack.")
    return best


def record_run(
    env: Any, learner: AbstractOnlineLearner, privatizer: AbstractPrivatizer, key: PRNGKeyArray
) -> RunTranscript:
    """Runs a few blocks, as `privrl.run` does, with two people each, and writes down plans and questions.

    Two stand for the whole block: to whoever knows everybody else's record, only the one attacked matters.
    """
    ends = short_run(learner, privatizer)
    declared = learner.declare(len(ends))
    ledger = privatizer.calibrate(declared)
    channels = {d.name: privatizer.channel(d, ledger) for d in declared}
    plans: list[Any] = []
    questions: list[tuple[str, int, int, Any]] = []
    carry = (
        learner.init(),
        {name: channel.init() for name, channel in channels.items()},
        {name: release for name, c in channels.items() if (release := c.empty()) is not None},
    )
    for t in range(len(ends) + 1):
        seen = ends[t - 1] if t else 0
        carry, plan, asked = _block(env, learner, channels, carry, jnp.asarray(t), jnp.asarray(seen), key)
        plans.append(plan)
        questions.extend((name, t, index, question) for name, index, question in asked)
    return RunTranscript(learner, privatizer, ledger, channels, ends, tuple(plans), tuple(questions))


@eqx.filter_jit
def _block(
    env: Any,
    learner: AbstractOnlineLearner,
    channels: dict[str, AbstractChannel],
    carry: Any,
    t: Int[Array, ""],
    seen: Int[Array, ""],
    key: PRNGKeyArray,
) -> tuple[Any, Any, list[tuple[str, int, Any]]]:
    """One plan, the questions it asked, and the releases about two people who acted on it."""
    memory, memories, released = carry
    keys = SimulationKeys.of(key)
    questions: list[tuple[str, int, Any]] = []

    def white(name: str, i: int) -> Array:
        return standard_normal(keys.white(list(channels).index(name), t, i), channels[name].statistic.shape)

    ask, _ = asker(channels, memories, lambda name, i, shape: white(name, i))

    def watch(name: str, index: int, question: Any) -> Release:
        questions.append((name, index, question))
        return ask(name, index, question)

    memory, plan = learner.next_plan(memory, released, watch, seen, key=keys.plan(t))
    if any(isinstance(channel, SymbolChannel) for channel in channels.values()):
        plan = eqx.tree_at(lambda p: p.policy, plan, plan.policy.realised(jax.random.fold_in(keys.ties, t)))
    memories, released = dict(memories), dict(released)

    def person(i: Int[Array, ""]) -> dict[str, Any]:
        record = env.rollout(plan.policy, keys.person(t, i))
        own = jax.random.fold_in(jax.random.fold_in(keys.reports, t), i)
        return {
            name: channel.term(record, plan, seen + i, jax.random.fold_in(own, c))
            for c, (name, channel) in enumerate(channels.items())
        }

    totals = jax.tree.map(lambda term: term.sum(axis=0), jax.vmap(person)(jnp.arange(2)))
    for name, channel in channels.items():
        fresh = functools.partial(white, name)
        memories[name], release = channel.publish(memories[name], totals[name], t, fresh)
        if release is not None:
            released[name] = release
    return (memory, memories, released), plan, questions
