"""`run`: simulate people who arrive one after another, exactly evaluated and compiled over seeds.

One block: the learner plans from what was released; `size` people act on the published plan; their terms are summed;
each channel makes its release. Blocks are a `lax.scan`, seeds and settings a `vmap`.
Where every statistic is a plain sum over transitions and goes to a curator, a block is one exact multinomial flow,
whose cost does not depend on its size; otherwise people are simulated in chunks.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from privrl.contracts.learner import AbstractLearner, AbstractOnlineLearner, Plan
from privrl.contracts.release import Release
from privrl.privacy.noise.sources import Seeded, standard_normal
from privrl.privacy.trust.channels import AbstractChannel, RoundsChannel
from privrl.privacy.trust.local_channels import AbstractLocalChannel, SymbolChannel
from privrl.privacy.trust.privatizers import AbstractPrivatizer
from privrl.statistics.rows import AbstractRowStatistic
from privrl.studies.result import Run
from privrl.studies.study import Study

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
    return sweep(env, [(learner, privatizer)], episodes=episodes, key=key, seeds=seeds, flow=flow)[0]


def sweep(
    env: Any,
    settings: Sequence[tuple[AbstractLearner, AbstractPrivatizer]],
    *,
    episodes: int,
    key: PRNGKeyArray,
    seeds: int = 1,
    flow: bool = True,
) -> list[Run]:
    """`run` for several settings together, compiled once: budgets, bonus scales, anything that is a number.

    Arguments:
        settings: pairs of learner and privatizer that differ in numbers only (not in shapes, schedules or kinds of
            noise). Every setting and every seed has randomness of its own.

    Returns:
        one `Run` per setting; `seconds` is the time of all of them.
    """
    if episodes < 1 or seeds < 1 or not settings:
        raise ValueError(
            f"`episodes` is {episodes}, `seeds` is {seeds} and there are {len(settings)} settings; each must be at "
            "least 1."
        )
    started = time.perf_counter()
    studies = [Study.online(learner, privatizer, episodes) for learner, privatizer in settings]
    for study in studies:
        if env.horizon != study.learner.horizon:
            raise ValueError(
                f"The world has `horizon`={env.horizon} and the learner {study.learner.horizon}. Give both the same."
            )
    channels = [study.channels() for study in studies]
    ends = studies[0].ends
    assert ends is not None
    flowing = flow and hasattr(env, "flow") and all(_flows(channel) for channel in channels[0].values())
    keys = jax.random.split(key, (len(settings), seeds))
    stacked = _stacked([(study.learner, own) for study, own in zip(studies, channels, strict=True)])
    chunk = min(_CHUNK, int(np.diff(ends, prepend=0).max()))  # nobody is simulated beyond the largest block
    noisy = any(study.privatizer.notion != "none" for study in studies)
    how = (None if flowing else chunk, noisy)
    policy, regret, counts = _simulate_settings(env, *stacked, jnp.asarray(ends), *how, keys)
    for i, study in enumerate(studies):
        for name, count in counts.items():
            study.ledger.reconcile(name, int(np.max(count[i])), channels[i][name].law)
    seconds = time.perf_counter() - started
    return [
        Run(
            jax.tree.map(lambda x, i=i: x[i], policy),
            study.certificate(Seeded.description, {"episodes per unit": 1}),
            np.asarray(ends),
            np.asarray(regret[i]),
            seconds,
        )
        for i, study in enumerate(studies)
    ]


def _stacked(settings: Sequence[tuple[AbstractLearner, dict[str, AbstractChannel]]]) -> tuple[Any, Any]:
    """All settings as one, with a leading axis on every array; refused if they differ in anything else."""
    arrays, rest = zip(*(eqx.partition(setting, eqx.is_array) for setting in settings), strict=True)
    shapes = [[leaf.shape for leaf in jax.tree.leaves(one)] for one in arrays]
    if any(not eqx.tree_equal(other, rest[0]) for other in rest) or any(other != shapes[0] for other in shapes):
        raise ValueError(
            "The settings of a `sweep` may differ in numbers only (budgets, bonus scales); these differ in shapes, "
            "schedules or kinds of noise. Run them one by one."
        )
    return eqx.combine(jax.tree.map(lambda *leaves: jnp.stack(leaves), *arrays), rest[0])


class SimulationKeys(NamedTuple):
    """The randomness of one seed of a simulation: each purpose has a key of its own."""

    people: PRNGKeyArray
    noise: PRNGKeyArray
    reports: PRNGKeyArray
    ties: PRNGKeyArray
    plans: PRNGKeyArray

    @classmethod
    def of(cls, key: PRNGKeyArray) -> "SimulationKeys":
        people, noise, reports, ties = jax.random.split(key, 4)
        return cls(people, noise, reports, ties, jax.random.fold_in(key, 4))

    def plan(self, t: int | Int[Array, ""]) -> PRNGKeyArray:
        """For the plan of block t, where a learner plans at random; public."""
        return jax.random.fold_in(self.plans, t)

    def white(self, number: int, t: int | Int[Array, ""], i: int | Int[Array, ""]) -> PRNGKeyArray:
        """For the i-th draw of noise in block t of the statistic with this number."""
        return jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(self.noise, number), t), i)

    def block(self, t: int | Int[Array, ""]) -> PRNGKeyArray:
        """For the people of block t."""
        return jax.random.fold_in(self.people, t)

    def person(self, t: int | Int[Array, ""], index: int | Int[Array, ""]) -> PRNGKeyArray:
        """For what happens to one of them."""
        return jax.random.fold_in(self.block(t), index)


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
    chunk: int | None,
    noisy: bool,
    key: PRNGKeyArray,
) -> tuple[Any, Array, dict[str, Array]]:
    """One seed: the policy after the last release, exact regret per block, and how many releases were made.

    People are simulated in chunks of this size, or as a flow without one. Without privacy nothing `noisy` is drawn.
    """
    keys = SimulationKeys.of(key)
    symbols = any(isinstance(channel, SymbolChannel) for channel in channels.values())
    optimal = env.optimal_value
    asks_per_plan: dict[str, int] = {}

    def white(name: str, t: Int[Array, ""], i: int | Int[Array, ""], shape: tuple[int, ...]) -> Array:
        if not noisy:
            return jnp.zeros(shape)
        return standard_normal(keys.white(list(channels).index(name), t, i), shape)

    def plan(memory: Any, memories: Any, released: Any, t: Int[Array, ""], seen: Int[Array, ""]) -> tuple[Any, Plan]:
        ask, counts = asker(channels, memories, lambda name, i, shape: white(name, t, i, shape))
        memory, plan = learner.next_plan(memory, released, ask, seen, key=keys.plan(t))
        asks_per_plan.update(counts)
        if symbols:  # people are shown one deterministic policy, so that a report of states says which action was taken
            plan = Plan(plan.policy.realised(jax.random.fold_in(keys.ties, t)), plan.question)
        return memory, plan

    def block(carry: Any, x: tuple[Array, Array, Array]) -> tuple[Any, Array]:
        t, begin, end = x
        memory, memories, released, _ = carry
        memory, published = plan(memory, memories, released, t, begin)
        block_key = keys.block(t)
        if chunk is None:
            rows = env.transitions(env.flow(published.policy, end - begin, block_key))
            totals = {name: _row_statistic(channel).of_rows(rows) for name, channel in channels.items()}
        else:
            own_key = jax.random.fold_in(keys.reports, t)
            totals = _totals(env, channels, published, begin, end, chunk, block_key, own_key)
        memories, released = dict(memories), dict(released)
        for name, channel in channels.items():
            fresh = lambda i, name=name, shape=channel.statistic.shape: white(name, t, i, shape)  # noqa: E731
            memories[name], release = channel.publish(memories[name], totals[name], t, fresh)
            if release is not None:
                released[name] = release
        return (memory, memories, released, published.policy), optimal - env.value(published.policy)

    state = (
        learner.init(),
        {name: channel.init() for name, channel in channels.items()},
        {name: release for name, channel in channels.items() if (release := channel.empty()) is not None},
    )
    form = jax.eval_shape(lambda: plan(*state, jnp.zeros((), int), ends[0])[1].policy)
    policy = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), form)
    # One more block, without people: its plan is the last one, and it is compiled only once. Nobody sees its releases.
    blocks, begins = len(ends), jnp.concatenate([jnp.zeros(1, ends.dtype), ends])
    steps = (jnp.arange(blocks + 1), begins, jnp.append(ends, ends[-1]))
    (*_, last), regret = jax.lax.scan(block, (*state, policy), steps)
    # The first plan asks about nobody.
    counts = {name: jnp.asarray(blocks * asks_per_plan.get(name, 1)) for name in channels}
    return last, regret[:-1], counts


_simulate_seeds = eqx.filter_vmap(_simulate, in_axes=(None, None, None, None, None, None, 0))
_simulate_settings = eqx.filter_jit(
    eqx.filter_vmap(_simulate_seeds, in_axes=(None, eqx.if_array(0), eqx.if_array(0), None, None, None, 0))
)


def _totals(
    env: Any,
    channels: dict[str, AbstractChannel],
    published: Plan,
    begin: Int[Array, ""],
    end: Int[Array, ""],
    size: int,
    block_key: PRNGKeyArray,
    own_key: PRNGKeyArray,
) -> dict[str, Any]:
    """The summed terms of people `begin` to `end`, simulated one by one in chunks of a size."""

    def person(index: Int[Array, ""]) -> dict[str, Any]:
        trajectory = env.rollout(published.policy, jax.random.fold_in(block_key, index))
        own = jax.random.fold_in(own_key, index)
        terms = {
            name: channel.term(trajectory, published, index, jax.random.fold_in(own, c))
            for c, (name, channel) in enumerate(channels.items())
        }
        return jax.tree.map(lambda term: jnp.where(index < end, term, 0.0), terms)

    def chunk(c: int | Int[Array, ""], totals: dict[str, Any]) -> dict[str, Any]:
        terms = jax.vmap(person)(begin + c * size + jnp.arange(size))
        return jax.tree.map(lambda total, term: total + term.sum(axis=0), totals, terms)

    for name, channel in channels.items():
        term = jax.eval_shape(person, begin)[name]
        found = jax.tree.leaves(term)[0].shape
        if found != channel.statistic.raw_shape:
            claimed = channel.statistic.raw_shape
            raise ValueError(f"`{name}`: a contribution has shape {found}, not the {claimed} it claims.")
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(person, begin))
    if size == 1:  # a release after every user
        return chunk(0, zeros)
    return jax.lax.fori_loop(0, -((begin - end) // size), chunk, zeros)
