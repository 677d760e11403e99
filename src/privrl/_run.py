"""`run`: simulate people who arrive one after another, exactly evaluated and compiled over seeds.

One block: the learner plans from what was released; `size` people act on the published plan; their terms are summed;
each channel makes its release. Blocks are a `lax.scan`, seeds a `vmap`. Where every statistic is a plain sum over
transitions and goes to a curator, a block is one exact multinomial flow, whose cost does not depend on its size;
otherwise people are simulated in chunks.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from privrl._result import Run
from privrl.learners import AbstractLearner, AbstractOnlineLearner, Plan
from privrl.privacy import (
    AbstractChannel,
    AbstractLocalChannel,
    AbstractPrivatizer,
    PairingError,
    Release,
    RoundsChannel,
    Seeded,
    SymbolChannel,
    standard_normal,
)
from privrl.statistics import AbstractRowStatistic

_CHUNK = 64


def run(
    env: Any,
    learner: AbstractLearner,
    privatizer: AbstractPrivatizer,
    *,
    episodes: int,
    key: PRNGKeyArray,
    seeds: int = 1,
    flow: bool = True,
) -> Run:
    """Simulates `episodes` people in an environment, `seeds` times over.

    Arguments:
        env: a world from `privrl.envs`.
        learner: an online learner such as `UCBVI`.
        privatizer: `NonPrivate()`, `Central(...)` (joint differential privacy) or `Local(...)`.
        episodes: the public number of people K; one person is one episode.
        key: randomness of the whole simulation. The certificate says "simulation".
        seeds: independent repetitions, run together.
        flow: simulate blocks as flows where that is exact and possible.

    Returns:
        exact regret per seed and episode, the last plan, and the certificate.
    """
    if not isinstance(learner, AbstractOnlineLearner):
        raise PairingError(
            f"`{type(learner).__name__}` learns from a table, not while people take part. Use `privrl.fit`, or an "
            "online learner such as `UCBVI`."
        )
    if episodes < 1 or seeds < 1:
        raise ValueError(f"`episodes` is {episodes} and `seeds` is {seeds}; both must be at least 1.")
    if env.horizon != learner.horizon:
        raise ValueError(
            f"The world has `horizon`={env.horizon} and the learner {learner.horizon}. Give both the same."
        )
    started = time.perf_counter()
    name = type(learner).__name__
    ends = learner.blocks(episodes)
    declared = learner.declare(len(ends))
    privatizer.check(name, declared)
    ledger = privatizer.calibrate(declared)
    channels = {d.name: privatizer.channel(d, ledger) for d in declared}
    flowing = flow and hasattr(env, "flow") and all(_flows(channel) for channel in channels.values())
    keys = jax.random.split(key, seeds)
    policy, regret, counts = _simulate_seeds(env, learner, channels, jnp.asarray(ends), flowing, keys)
    ledger.reconcile({name: int(np.max(count)) for name, count in counts.items()})
    certificate = privatizer.certificate(
        ledger,
        learner=name,
        unit="user",
        bounds={**learner.bounds(), "episodes per unit": 1},
        noise_source=Seeded.description,
        notion="joint" if privatizer.notion == "central" else None,
    )
    return Run(policy, certificate, np.asarray(ends), np.asarray(regret), time.perf_counter() - started)


def _row_statistic(channel: AbstractChannel) -> AbstractRowStatistic:
    assert isinstance(channel.statistic, AbstractRowStatistic)
    return channel.statistic


def _flows(channel: AbstractChannel) -> bool:
    statistic = channel.statistic
    return (
        not isinstance(channel, AbstractLocalChannel)
        and isinstance(statistic, AbstractRowStatistic)
        and statistic.plain
    )


def asker(
    channels: Mapping[str, AbstractChannel], memories: Mapping[str, Any], white: Callable[[str, int, tuple], Array]
) -> tuple[Callable[[str, int, Any], Release], dict[str, int]]:
    """The `ask` of one plan, and a count of what it released. `white(name, index, shape)` draws new white noise.

    The count is right inside `jit` too, because every release of a plan needs a Python integer of its own.
    """
    asked: dict[str, set[int]] = {name: set() for name, c in channels.items() if isinstance(c, RoundsChannel)}
    counts = dict.fromkeys(asked, 0)

    def ask(name: str, index: int, question: Any) -> Release:
        channel = channels.get(name)
        if not isinstance(channel, RoundsChannel):
            raise ValueError(f"`{name}` was not declared with `access='rounds'`, so it cannot be asked for.")
        if not isinstance(index, int) or index in asked[name]:
            raise ValueError(
                f"`index` of a release of `{name}` must be a new Python integer in each plan; got {index}."
            )
        asked[name].add(index)
        counts[name] += 1
        return channel.ask(memories[name], question, lambda i: white(name, index, channel.statistic.shape))

    return ask, counts


def _simulate(
    env: Any,
    learner: AbstractOnlineLearner,
    channels: dict[str, AbstractChannel],
    ends: Int[Array, " B"],
    flowing: bool,
    key: PRNGKeyArray,
) -> tuple[Any, Array, dict[str, Array]]:
    """One seed: the policy after the last release, exact regret per block, and how many releases were made."""
    people_key, noise_key, own_key, tie_key = jax.random.split(key, 4)
    symbols = any(isinstance(channel, SymbolChannel) for channel in channels.values())
    optimal = env.optimal_value
    asks_per_plan: dict[str, int] = {}

    def white(name: str, t: Int[Array, ""], i: int, shape: tuple[int, ...]) -> Array:
        channel_key = jax.random.fold_in(noise_key, list(channels).index(name))
        return standard_normal(jax.random.fold_in(jax.random.fold_in(channel_key, t), i), shape)

    def plan(memory: Any, memories: Any, released: Any, t: Int[Array, ""], seen: Int[Array, ""]) -> tuple[Any, Plan]:
        ask, counts = asker(channels, memories, lambda name, i, shape: white(name, t, i, shape))
        memory, plan = learner.next_plan(memory, released, ask, seen)
        asks_per_plan.update(counts)
        if symbols:  # people are shown one deterministic policy, so that a report of states says which action was taken
            plan = Plan(plan.policy.realised(jax.random.fold_in(tie_key, t)), plan.question)
        return memory, plan

    def block(carry: Any, x: tuple[Array, Array, Array]) -> tuple[Any, Array]:
        t, begin, end = x
        memory, memories, released, counts = carry
        memory, published = plan(memory, memories, released, t, begin)
        block_key = jax.random.fold_in(people_key, t)
        if flowing:
            rows = env.transitions(env.flow(published.policy, end - begin, block_key))
            totals = {name: _row_statistic(channel).of_rows(rows) for name, channel in channels.items()}
        else:
            totals = _totals(env, channels, published, begin, end, block_key, jax.random.fold_in(own_key, t))
        memories, released, counts = dict(memories), dict(released), dict(counts)
        for name, channel in channels.items():
            fresh = lambda i, name=name, shape=channel.statistic.shape: white(name, t, i, shape)  # noqa: E731
            memories[name], release = channel.publish(memories[name], totals[name], t, fresh)
            if release is not None:
                released[name] = release
                counts[name] = counts[name] + 1
            else:  # the first plan asks about nobody
                counts[name] = counts[name] + asks_per_plan[name] * (t > 0)
        return (memory, memories, released, counts), optimal - env.value(published.policy)

    empty = {name: release for name, channel in channels.items() if (release := channel.empty()) is not None}
    carry = (
        learner.init(),
        {name: channel.init() for name, channel in channels.items()},
        empty,
        dict.fromkeys(channels, jnp.zeros((), int)),
    )
    begins = jnp.concatenate([jnp.zeros(1, ends.dtype), ends[:-1]])
    (memory, memories, released, counts), regret = jax.lax.scan(block, carry, (jnp.arange(len(ends)), begins, ends))
    _, last = plan(memory, memories, released, jnp.asarray(len(ends)), ends[-1])
    counts = {name: count + asks_per_plan.get(name, 0) for name, count in counts.items()}
    return last.policy, regret, counts


_simulate_seeds = eqx.filter_jit(eqx.filter_vmap(_simulate, in_axes=(None, None, None, None, None, 0)))


def _totals(
    env: Any,
    channels: dict[str, AbstractChannel],
    published: Plan,
    begin: Int[Array, ""],
    end: Int[Array, ""],
    block_key: PRNGKeyArray,
    own_key: PRNGKeyArray,
) -> dict[str, Any]:
    """The summed terms of people `begin` to `end`, simulated one by one in chunks."""

    def person(index: Int[Array, ""]) -> dict[str, Any]:
        trajectory = env.rollout(published.policy, jax.random.fold_in(block_key, index))
        own = jax.random.fold_in(own_key, index)
        terms = {
            name: channel.term(trajectory, published, index, jax.random.fold_in(own, c))
            for c, (name, channel) in enumerate(channels.items())
        }
        return jax.tree.map(lambda term: jnp.where(index < end, term, 0.0), terms)

    def chunk(c: int | Int[Array, ""], totals: dict[str, Any]) -> dict[str, Any]:
        terms = jax.vmap(person)(begin + c * _CHUNK + jnp.arange(_CHUNK))
        return jax.tree.map(lambda total, term: total + term.sum(axis=0), totals, terms)

    for name, channel in channels.items():
        term = jax.eval_shape(person, begin)[name]
        found = jax.tree.leaves(term)[0].shape
        if found != channel.statistic.raw_shape:
            claimed = channel.statistic.raw_shape
            raise ValueError(f"`{name}`: a contribution has shape {found}, not the {claimed} it claims.")
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(person, begin))
    return jax.lax.fori_loop(0, -((begin - end) // _CHUNK), chunk, zeros)
