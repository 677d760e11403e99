"""What a device can do at most, measured, and what XLA says a compiled run needs: bytes of memory and operations.

**How an episode is charged.** XLA's cost analysis counts the body of a loop once, however often it runs. The program of
a run with a release after every user is

    [ plan, walk, sum, evaluate ]  once, the body of the loop over episodes

and walking and evaluating are loops over the H steps, counted for one step. With c the program's count and w that of
walking and evaluating alone (compiled by themselves, also counted for one step), an episode is charged c - w + H w.
`python -m bench.roofline` compiles a plan by itself for comparison with c - w.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from bench.timing import seconds
from privrl.contracts.learner import AbstractOnlineLearner
from privrl.mdp.types import TabularPolicy
from privrl.privacy.trust.privatizers import AbstractPrivatizer
from privrl.studies.loop import State
from privrl.studies.simulation.simulated_loop import Simulation, SimulationKeys
from privrl.studies.simulation.simulating import simulate_seeds
from privrl.studies.study import Study


class Cost(NamedTuple):
    """Bytes of memory read and written, and floating-point operations."""

    bytes: float
    flops: float

    @classmethod
    def of(cls, compiled: Any) -> "Cost":
        """As XLA counts a compiled computation; bodies of loops once."""
        analysis = compiled.cost_analysis()
        found = analysis[0] if isinstance(analysis, list) else analysis or {}
        return cls(float(found.get("bytes accessed", float("nan"))), float(found.get("flops", float("nan"))))


def compiled_run(
    env: Any, learner: AbstractOnlineLearner, privatizer: AbstractPrivatizer, episodes: int, seeds: int
) -> Any:
    """The program of `privrl.run` for these arguments, if all seeds are in one program."""
    study = Study.online(learner, privatizer, episodes)
    keys = jax.random.split(jax.random.key(0), (1, seeds))[0]
    simulate: Any = simulate_seeds
    noisy = privatizer.notion != "none"
    return simulate.lower(env, learner, study.channels(), jnp.asarray(study.ends), 1, noisy, 0, keys).compile().compiled


def episode_cost(program: Any, env: Any, seeds: int) -> Cost:
    """What one episode of all seeds together needs, from the compiled program of the whole run."""
    H, S, A = env.horizon, env.num_states, env.num_actions

    @jax.jit
    @jax.vmap
    def walk_and_evaluate(pi: jax.Array, key: jax.Array) -> tuple[Any, jax.Array]:
        policy = TabularPolicy(pi)
        return env.rollout(policy, key), env.value(policy)

    policies = jax.ShapeDtypeStruct((seeds, H, S, A), jnp.float64)
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), seeds))
    walking = Cost.of(walk_and_evaluate.lower(policies, keys).compile())
    whole = Cost.of(program)
    return Cost(*(c - w + H * w for c, w in zip(whole, walking, strict=True)))


def peak_bandwidth(numbers: int) -> float:
    """Bytes a second of a triad a + 3 b over so many float64 numbers."""
    a, b = jnp.ones(numbers), jnp.full(numbers, 2.0)
    triad = jax.jit(lambda a, b: a + 3.0 * b)
    return 3 * 8 * numbers / seconds(lambda: triad(a, b))


def peak_flops(size: int) -> float:
    """Float64 operations a second of a product of square matrices."""
    a = jnp.ones((size, size))
    product = jax.jit(lambda a: jnp.matmul(a, a, precision="highest"))
    return 2.0 * size**3 / seconds(lambda: product(a))


def main(horizon: int = 3, seeds: int = 8) -> None:
    """Compares what an episode is charged with a plan that is compiled by itself."""
    from bench.device import SyntheticLinear, agents

    env = SyntheticLinear(horizon=horizon)
    for name, learner, privatizer in agents(env):
        program = compiled_run(env, learner, privatizer, 10, seeds)
        channels = Study.online(learner, privatizer, 10).channels()

        def plan(state: State, key: jax.Array, env: Any = env, learner: Any = learner, channels: Any = channels) -> Any:
            simulation = Simulation(env, learner, channels, SimulationKeys.of(key))
            return simulation.plan(state, 0, jnp.asarray(3))[:2]

        stacked = jax.tree.map(lambda x: jnp.stack([x] * seeds), State.first(learner, channels))
        keys = jax.random.split(jax.random.key(0), seeds)
        compiling: Any = eqx.filter_jit(jax.vmap(plan))
        alone = Cost.of(compiling.lower(stacked, keys).compile().compiled)
        print(f"{name}: program {Cost.of(program)}, an episode {episode_cost(program, env, seeds)}, one plan {alone}")


if __name__ == "__main__":
    main()
