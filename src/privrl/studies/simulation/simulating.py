"""`run`: simulate people who arrive one after another, exactly evaluated and compiled over seeds.

One block: the learner plans from what was released; `size` people act on the published plan; their terms are summed;
each channel makes its release. Blocks are a `lax.scan`, seeds and settings a `vmap`.
Where every statistic is a plain sum over transitions and goes to a curator, a block is one exact multinomial flow,
whose cost does not depend on its size; otherwise people are simulated in chunks.
"""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray, UInt32

from privrl.contracts.learner import AbstractAnalysis, AbstractLearner, AbstractOnlineLearner, Plan
from privrl.contracts.statistic import Adjacency
from privrl.envs.base import Env
from privrl.envs.patients.patient_world import AbstractPatients
from privrl.envs.recorded_world import AbstractRecorded
from privrl.executors.executor import AbstractExecutor
from privrl.learners.trials.trial import Trial
from privrl.mdp.types import Trajectory
from privrl.privacy.noise.arithmetic import empty_contributes
from privrl.privacy.noise.sources import Seeded
from privrl.privacy.trust.channels import AbstractChannel
from privrl.privacy.trust.local_channels import AbstractLocalChannel
from privrl.privacy.trust.privatizers import AbstractPrivatizer
from privrl.recipes.pairing import BudgetArguments, resolve_pair, world_named
from privrl.statistics.row_statistics import AbstractRowStatistic
from privrl.studies.keys import KeyLike, seeded_key
from privrl.studies.memory import check_memory
from privrl.studies.open_ended import OpenEnded, smallest_block, until
from privrl.studies.results.run_result import Run
from privrl.studies.simulation.pilot_world import PilotWorld
from privrl.studies.simulation.seed_programs import default_seeds_per_program
from privrl.studies.simulation.simulated_loop import Simulation, SimulationKeys, lag
from privrl.studies.study import Study, participation_of

_CHUNK = 64  # people who are simulated together


def run(
    env: object,
    learner: str | AbstractLearner,
    privatizer: AbstractPrivatizer | None = None,
    *,
    episodes: int,
    key: KeyLike,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    adjacency: Adjacency | None = None,
    seeds: int = 1,
    flow: bool = True,
    executor: AbstractExecutor | None = None,
    max_episodes_per_unit: int = 1,
    min_block_distance: int = 0,
    delay: int = 0,
    open_ended: OpenEnded | bool = False,
    seeds_per_program: int | None = None,
) -> Run:
    """Simulates `episodes` people in an environment, `seeds` times over.

    >>> run = privrl.run("riverswim", "dp-ucbvi", epsilon=1, delta=1e-6, episodes=1_000, seeds=2, key=0)
    >>> run.total_regret.shape
    (2,)
    >>> run
    Run(UCBVI, 2 seeds of 1,000 episodes, joint privacy, epsilon 1, delta 1e-06, simulated noise)

    The long form takes objects, and gives the same numbers:

    >>> world = privrl.envs.make("riverswim")
    >>> learner = privrl.recipes.get("dp-ucbvi").build(world)
    >>> long = privrl.run(world, learner, privrl.Central(epsilon=1, delta=1e-6), episodes=1_000, seeds=2, key=0)
    >>> bool((long.total_regret == run.total_regret).all())
    True

    Arguments:
        env: a world from `privrl.envs`, or its name (`privrl list envs`).
        learner: the name of a recipe (`privrl list recipes`), or an online learner such as `UCBVI`.
        privatizer: with a learner object: `NonPrivate()`, `Central(...)` (joint differential privacy) or `Local(...)`.
        episodes: the public number of episodes K; one person is one episode, unless people return.
        key: the randomness of the whole simulation: an integer, or a JAX key. The certificate says "simulation".
        epsilon, delta, rho, adjacency: the budget, with the name of a private recipe.
        seeds: independent repetitions, run together.
        flow: simulate blocks as flows where that is exact and possible.
        executor: where seeds are simulated: `Processes(4)`, or `Dask(client)`. The numbers are those of this process,
            bit for bit on like machines, because an executor gets the programs that this process would run.
        max_episodes_per_unit: how many of the K episodes may be those of one person. Noise and certificate cover all of
            them, whichever they are; what is simulated does not depend on who it is.
        min_block_distance: the least number of blocks from one episode of a person to their next, where that is known.
        delay: how many blocks plans lag behind: block t acts on the plan that followed block t - 1 - `delay`, as if
            people overlapped. Who returns is then secret (see `Agent`), so with `max_episodes_per_unit` > 1 a
            curator's learner reads the number of records in a block off releases.
        open_ended: K is not known in advance (True, or an `OpenEnded`): noise and schedule are those of a study without
            a known end, of which the first `episodes` people are simulated.
        seeds_per_program: the largest number of seeds that are compiled and run together. The default is 32 on a CPU.
            On an accelerator the default is all of them, or fewer if they do not fit into its memory; then a line in
            the log explains the cut. A different number may change the last bits of a result.

    Returns:
        exact regret per seed and episode, the last plan, and the certificate.

    Raises:
        ValueError: there is no such recipe or world, the two do not fit, or a number is out of its range.
        TypeError: a privatizer or a budget is missing, or both were given.
        BudgetError: the budget is missing or meaningless.
        PairingError: the privatizer cannot serve the learner.
    """
    world = world_named(env)
    _refuse_unknown(world)
    budget = BudgetArguments(epsilon, delta, rho, adjacency)
    known = None if isinstance(world, PilotWorld) else world  # no recipe is built for the arms of a trial
    (simulated,) = sweep(
        world,
        [resolve_pair(learner, privatizer, known, budget, "online", "control")],
        episodes=episodes,
        key=key,
        seeds=seeds,
        flow=flow,
        executor=executor,
        max_episodes_per_unit=max_episodes_per_unit,
        min_block_distance=min_block_distance,
        delay=delay,
        open_ended=open_ended,
        seeds_per_program=seeds_per_program,
    )
    return replace(simulated, recipe=learner) if isinstance(learner, str) else simulated


def _refuse_unknown(env: object) -> None:
    """Explains what to do with a world of unknown probabilities, which can only be stepped through or sampled."""
    known = "`privrl.run` simulates worlds whose probabilities are known"
    if isinstance(env, AbstractPatients | AbstractRecorded):
        raise ValueError(
            f"In `{env.name}` people are simulated one by one, and {known}. Learn from a table of them: `privrl fit "
            f"env:{env.name}`, or `privrl.fit`. Where people arrive, learn from one block of them after another."
        )
    if hasattr(env, "reset") and hasattr(env, "action_space"):
        name = getattr(getattr(env, "spec", None), "id", None) or type(env).__name__
        raise ValueError(
            f"`{name}` is a Gymnasium environment, and {known}. For a tabular one use "
            f'`privrl.envs.make("gym:{name}")`; record episodes of any other with `privrl.data.from_gymnasium` and '
            "learn from them with `privrl.fit`, or let your own loop ask a `privrl.Agent`."
        )


def sweep(
    env: object,
    settings: str | Sequence[tuple[AbstractLearner, AbstractPrivatizer]],
    *,
    episodes: int,
    key: KeyLike,
    epsilon: float | Sequence[float] | None = None,
    delta: float | None = None,
    rho: float | Sequence[float] | None = None,
    adjacency: Adjacency | None = None,
    seeds: int = 1,
    flow: bool = True,
    executor: AbstractExecutor | None = None,
    max_episodes_per_unit: int = 1,
    min_block_distance: int = 0,
    delay: int = 0,
    open_ended: OpenEnded | bool = False,
    seeds_per_program: int | None = None,
) -> list[Run]:
    """`run` for several settings together, compiled once: budgets, bonus scales, anything that is a number.

    >>> runs = privrl.sweep("riverswim", "dp-ucbvi", epsilon=[1, 100], delta=1e-6, episodes=1_000, key=0)
    >>> [round(run.certificate.epsilon) for run in runs]
    [1, 100]

    Arguments:
        settings: the name of a recipe, with several budgets; or pairs of learner and privatizer that differ in numbers
            only (not in shapes, schedules or kinds of noise). Every setting and every seed has randomness of its own.
        epsilon, rho: one of the two is the list of budgets of a recipe.
        delta, adjacency: of all budgets of a recipe.

    The other arguments are those of `run`, for all settings.

    Returns:
        one `Run` per setting; `seconds` is the time of all of them.

    Raises:
        ValueError: the settings differ in more than numbers; otherwise as `run`.
    """
    world = world_named(env)
    _refuse_unknown(world)
    recipe = settings if isinstance(settings, str) else None
    settings = _settings(world, settings, epsilon, delta, rho, adjacency)
    if episodes < 1 or seeds < 1 or delay < 0 or not settings:
        raise ValueError(
            f"`episodes` is {episodes}, `seeds` is {seeds} and there are {len(settings)} settings; each must be at "
            f"least 1. `delay` is {delay}; it must be at least 0."
        )
    if seeds_per_program is not None and seeds_per_program < 1:
        raise ValueError(f"`seeds_per_program` is {seeds_per_program}; it must be at least 1.")
    started = time.perf_counter()
    often = participation_of(max_episodes_per_unit, min_block_distance)
    spec = OpenEnded() if open_ended is True else open_ended
    places: int | OpenEnded = episodes if spec is False else spec
    studies = [
        Study.online(learner, privatizer, places, often, secret_returns=delay > 0) for learner, privatizer in settings
    ]
    for study in studies:
        check_memory(study.learner, study.declared)
    for study in studies:
        if world.horizon != study.learner.horizon:
            raise ValueError(
                f"The world has `horizon`={world.horizon} and the learner {study.learner.horizon}. Give both the same."
            )
    channels = [study.channels() for study in studies]
    _check_empty_record(world, studies[0].learner, channels[0])
    ends = _ends(studies[0], episodes)
    flowing = flow and hasattr(world, "flow") and all(_flows(channel) for channel in channels[0].values())
    keys = jax.random.key_data(jax.random.split(seeded_key(key), (len(settings), seeds)))
    pairs = [(study.learner, own) for study, own in zip(studies, channels, strict=True)]
    chunk = min(_CHUNK, int(np.diff(ends, prepend=0).max()))  # no person is simulated beyond the largest block
    noisy = any(study.privatizer.notion != "none" for study in studies)
    how = (None if flowing else chunk, noisy, delay)
    if seeds_per_program is None:
        assert isinstance(studies[0].learner, AbstractOnlineLearner)
        seeds_per_program = default_seeds_per_program(
            seeds,
            len(settings),
            studies[0].learner,
            channels[0],
            people=0 if flowing else chunk,
            blocks=len(ends),
            kept_plans=delay + 1 if delay else 0,
        )
    chunks = np.array_split(np.asarray(keys), math.ceil(seeds / seeds_per_program), axis=1)
    task = (world, pairs, np.asarray(ends), *how)
    if executor is None:
        parts = [_simulated(chunk, *task) for chunk in chunks]
    else:
        executor.start(chunks)
        found = dict(executor.map_shards(_simulated, *task))
        parts = [found[i] for i in range(len(chunks))]
    simulated = parts[0] if len(parts) == 1 else jax.tree.map(lambda *x: jnp.concatenate(x), *parts)
    seconds = time.perf_counter() - started
    return [
        Run(
            policy,
            study.certificate(
                Seeded.origin,
                made={name: (int(np.max(count)), own[name].calibration) for name, count in counts.items()},
            ),
            np.asarray(ends),
            np.asarray(regret),
            seconds,
            recipe=recipe or type(study.learner).__name__,
        )
        for study, own, (policy, regret, counts) in zip(studies, channels, simulated, strict=True)
    ]


def _check_empty_record(world: Any, learner: AbstractAnalysis, channels: dict[str, AbstractChannel]) -> None:
    """Refuses a statistic to which an episode without steps contributes, for a plan of ones.

    Whether such an episode is counted differs between a simulated block, a live study and a table.
    """
    if isinstance(world, PilotWorld):  # people of a trial have an outcome, not an episode
        return
    assert isinstance(learner, AbstractOnlineLearner)
    for name, contributes in _contribute(world, learner, channels).items():
        if contributes:
            raise ValueError(empty_contributes(channels[name].statistic))


@eqx.filter_jit
def _contribute(
    world: Any, learner: AbstractOnlineLearner, channels: dict[str, AbstractChannel]
) -> dict[str, Bool[Array, ""]]:
    """Whether an episode without steps contributes to each channel. One program, so that a plan is traced once for each
    learner, and not in each run."""
    plan, empty = None, Trajectory.empty(world.horizon)
    if not all(isinstance(channel.statistic, AbstractRowStatistic) for channel in channels.values()):
        simulation = Simulation(world, learner, channels, SimulationKeys.of(jax.random.key(0)))
        form = jax.eval_shape(lambda: simulation.plan(simulation.first(), jnp.zeros((), int), jnp.ones((), int))[1])
        record = jax.eval_shape(world.rollout, form.policy, jax.random.key(0))
        plan = jax.tree.map(lambda x: jnp.ones(x.shape, x.dtype), form)
        empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), record)
    return {name: jnp.any(channel.statistic.contribution(empty, plan) != 0) for name, channel in channels.items()}


def _settings(
    env: Any,
    settings: str | Sequence[tuple[AbstractLearner, AbstractPrivatizer]],
    epsilon: float | Sequence[float] | None,
    delta: float | None,
    rho: float | Sequence[float] | None,
    adjacency: Adjacency | None,
) -> Sequence[tuple[AbstractLearner, AbstractPrivatizer]]:
    """The pairs of a sweep: as given, or those of a recipe with each of several budgets."""
    epsilons, rhos = (list(x) if isinstance(x, Iterable) else [x] for x in (epsilon, rho))
    if len(epsilons) > 1 and len(rhos) > 1:
        raise TypeError("Both `epsilon` and `rho` are lists; a budget has one of the two.")
    budgets = [BudgetArguments(e, delta, r, adjacency) for e in epsilons for r in rhos]
    if isinstance(settings, str):
        return [resolve_pair(settings, None, env, budget, "online", "control") for budget in budgets]
    if budgets != [BudgetArguments()]:
        raise TypeError("`epsilon`, `delta`, `rho` and `adjacency` belong to the name of a recipe, not to pairs.")
    return settings


def _ends(study: Study, episodes: int) -> Int[np.ndarray, " B"]:
    """The blocks that are simulated: all, or those of a study without a known end up to the last person."""
    assert study.ends is not None and isinstance(study.learner, AbstractOnlineLearner)
    if study.open_ended is None:
        return study.ends
    if episodes > study.ends[-1]:
        raise ValueError(
            f"`episodes` is {episodes}, and no more than {study.ends[-1]} people can take part. Raise `ceiling` of "
            "`OpenEnded`, or the people of an epoch."
        )
    return until(study.ends, episodes, smallest_block(study.learner))


def _simulated(
    keys: UInt32[np.ndarray, "settings seeds ..."],
    env: Any,
    pairs: Sequence[tuple[AbstractAnalysis, dict[str, AbstractChannel]]],
    ends: Int[np.ndarray, " B"],
    chunk: int | None,
    noisy: bool,
    delay: int,
) -> list[tuple[Any, Array, dict[str, Array]]]:
    """Some seeds of every setting: policies, regret and numbers of releases, one row per seed."""
    split, how = jax.random.wrap_key_data(jnp.asarray(keys)), (jnp.asarray(ends), chunk, noisy, delay)
    if len(pairs) == 1:  # what all seeds share is not stacked with them: products with it are much cheaper
        return [simulate_seeds(env, *pairs[0], *how, split[0])]
    together = _simulate_settings(env, *_stacked(pairs), *how, split)
    return [jax.tree.map(lambda x, i=i: x[i], together) for i in range(len(pairs))]


def _stacked(settings: Sequence[tuple[AbstractAnalysis, dict[str, AbstractChannel]]]) -> tuple[object, object]:
    """All settings as one, with a leading axis on every array; refused if they differ in anything else."""
    arrays, rest = zip(*(eqx.partition(setting, eqx.is_array) for setting in settings), strict=True)
    shapes = [[leaf.shape for leaf in jax.tree.leaves(one)] for one in arrays]
    if any(not eqx.tree_equal(other, rest[0]) for other in rest) or any(other != shapes[0] for other in shapes):
        raise ValueError(
            "The settings of a `sweep` may differ in numbers only (budgets, bonus scales); these differ in shapes, "
            "schedules or kinds of noise. Run them one by one."
        )
    return eqx.combine(jax.tree.map(lambda *leaves: jnp.stack(leaves), *arrays), rest[0])


def _row_statistic(channel: AbstractChannel) -> AbstractRowStatistic:
    assert isinstance(channel.statistic, AbstractRowStatistic)
    return channel.statistic


def _flows(channel: AbstractChannel) -> bool:
    statistic = channel.statistic
    return (
        not isinstance(channel, AbstractLocalChannel)
        and isinstance(statistic, AbstractRowStatistic)
        and statistic.hints.plain
    )


def _simulate(
    env: Any,
    learner: AbstractOnlineLearner,
    channels: dict[str, AbstractChannel],
    ends: Int[Array, " B"],
    chunk: int | None,
    noisy: bool,
    delay: int,
    key: PRNGKeyArray,
) -> tuple[Any, Array, dict[str, Array]]:
    """One seed: the policy after the last release, exact regret per block, and how many releases were made.

    People are simulated in chunks of this size, or as a flow without one. Without privacy nothing `noisy` is drawn.
    With a `delay` the learner is told which plan the last block acted on, as it is where people overlap.
    """
    simulation = Simulation(env, learner, channels, SimulationKeys.of(key), noisy)
    optimal = env.optimal_value
    queries_per_plan: dict[str, int] = {}

    def block(carry: Any, x: tuple[Array, Array, Array]) -> tuple[Any, Array]:
        (t, begin, end), (state, _, older) = x, carry
        if delay:
            zero = jnp.zeros((), int)
            state = state._replace(memory=learner.acted_on(state.memory, older[0][0], zero))
        state, made, counts = simulation.plan(state, t, begin)
        queries_per_plan.update(counts)
        older = lag(older, state.memory, made, t) if delay else ()
        published = older[0][1] if delay else made
        world = env.at(begin) if isinstance(env, Env) else env  # a world that drifts stands still for a block
        if isinstance(world, PilotWorld):
            assert isinstance(learner, Trial)
            key = simulation.keys.block(t)
            totals, assigned = world.enrol(learner, published, t, begin, end, channels, key)
            memory = learner.enrol(state.memory, assigned, jnp.maximum(t - delay, 0))
            state = state._replace(memory=memory)
        elif chunk is None:
            rows = world.transitions(world.flow(published.policy, end - begin, simulation.keys.block(t)))
            totals = {name: _row_statistic(channel).of_rows(rows) for name, channel in channels.items()}
        else:
            totals = _totals(replace(simulation, env=world), published, t, begin, end, chunk)
        best = optimal if world is env else world.optimal_value
        return (simulation.publish(state, totals, t), made.policy, older), best - world.value(published.policy)

    first = simulation.first()
    form = jax.eval_shape(lambda: simulation.plan(first, jnp.zeros((), int), ends[0])[1])
    empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), form)
    start = (first, empty.policy, ((first.memory, empty),) * (delay + 1 if delay else 0))
    # One more block without people: its plan is the last one, and it is compiled only once. Its releases are not shown.
    blocks, begins = len(ends), jnp.concatenate([jnp.zeros(1, ends.dtype), ends])
    steps = (jnp.arange(blocks + 1), begins, jnp.append(ends, ends[-1]))
    (_, last, _), regret = jax.lax.scan(block, start, steps)
    # The first plan makes no query.
    counts = {name: jnp.asarray(blocks * queries_per_plan.get(name, 1)) for name in channels}
    return last, regret[:-1], counts


_seeds = eqx.filter_vmap(_simulate, in_axes=(None, None, None, None, None, None, None, 0))
simulate_seeds = eqx.filter_jit(_seeds)
_simulate_settings = eqx.filter_jit(
    eqx.filter_vmap(_seeds, in_axes=(None, eqx.if_array(0), eqx.if_array(0), None, None, None, None, 0))
)


def _totals(
    simulation: Simulation,
    published: Plan,
    t: Int[Array, ""],
    begin: Int[Array, ""],
    end: Int[Array, ""],
    size: int,
) -> dict[str, Any]:
    """The summed terms of people `begin` to `end`, simulated one by one in chunks of a size."""

    def person(index: Int[Array, ""]) -> dict[str, Any]:
        _, terms = simulation.person(published, t, index)
        return jax.tree.map(lambda term: jnp.where(index < end, term, 0.0), terms)

    def chunk(c: int | Int[Array, ""], totals: dict[str, object]) -> dict[str, object]:
        terms = jax.vmap(person)(begin + c * size + jnp.arange(size))
        return jax.tree.map(lambda total, term: total + term.sum(axis=0), totals, terms)

    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(person, begin))
    if size == 1:  # a release after every user
        return chunk(0, zeros)
    return jax.lax.fori_loop(0, -((begin - end) // size), chunk, zeros)
