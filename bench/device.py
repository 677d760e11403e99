"""`python -m bench.device`: private episodes per second of per-episode agents, thousands of seeds at once.

Every user is followed by a release of everything with fresh noise and a new factorisation of every step's matrix. Runs
on whatever JAX finds, a GPU if there is one, in float64. Then the roofline: how much of the device's measured memory
bandwidth and float64 speed these rates are, by XLA's count of what an episode needs (see `bench.roofline`). With few
seeds everything stays in caches, and the share of the memory bandwidth can exceed 100%.
"""

import argparse
import functools
import time
from collections.abc import Iterator
from typing import Any

import jax

from bench.roofline import compiled_run, episode_cost, peak_bandwidth, peak_flops
from privrl.contracts.learner import AbstractOnlineLearner
from privrl.envs.tabular.synthetic import SyntheticLinear
from privrl.learners.linear.lsvi_ucb_plus_plus import LSVIUCBPlusPlus
from privrl.learners.linear.lsvi_ucb_unweighted import PerEpisodeLSVIUCB
from privrl.privacy.trust.privatizers import AbstractPrivatizer
from privrl.recipes.all_recipes import get
from privrl.studies.simulation.simulating import run

say = functools.partial(print, flush=True)


def agents(env: Any) -> Iterator[tuple[str, AbstractOnlineLearner, AbstractPrivatizer]]:
    """The two per-episode agents: one Gram matrix and one regression per step, and with weights one and three."""
    newer = LSVIUCBPlusPlus.paper(env.features, env.horizon, rewards=env.rewards, switching="always")
    older = PerEpisodeLSVIUCB(env.features, env.horizon, rewards=env.rewards, noise_ridge=newer.noise_ridge)
    for name, learner in (("LSVI-UCB", older), ("LSVI-UCB++", newer)):
        yield name, learner, get("dp-lsvi-ucb++@paper").privatizer(epsilon=10.0, delta=1e-5)


def fastest(
    env: Any,
    learner: AbstractOnlineLearner,
    privatizer: AbstractPrivatizer,
    episodes: int,
    seeds: int,
    per_program: int | None = None,
) -> float:
    """Seconds of `privrl.run`, the better of two after one that may compile."""
    times = []
    for number in range(3):
        started = time.perf_counter()
        how = {"episodes": episodes, "seeds": seeds, "seeds_per_program": per_program}
        done = run(env, learner, privatizer, key=jax.random.key(number), **how)
        assert done.block_regret.shape == (seeds, episodes)
        times.append(time.perf_counter() - started)
    return min(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4_096)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--horizon", type=int, default=20)
    parser.add_argument("--seeds-per-program", type=int, help="as of `privrl.run`, whose default is measured otherwise")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    device = jax.devices()[0]
    env = SyntheticLinear(horizon=given.horizon)
    S, A, d = env.features.table.shape
    say(f"{device.device_kind}: {given.seeds:,} seeds together, H={env.horizon}, S={S}, A={A}, d={d}, float64")

    large = device.platform != "cpu"
    bandwidth, flops = peak_bandwidth(10**8 if large else 10**7), peak_flops(8_192 if large else 1_024)
    say(f"measured peaks: {bandwidth / 1e9:,.1f} GB/s (triad), {flops / 1e9:,.1f} GFLOP/s (matrix product)")

    for name, learner, privatizer in agents(env):
        started = time.perf_counter()
        program = compiled_run(env, learner, privatizer, given.episodes, given.seeds)
        say(f"{name}: compiled in {time.perf_counter() - started:.1f} s")
        taken = fastest(env, learner, privatizer, given.episodes, given.seeds, given.seeds_per_program)
        rate = given.seeds * given.episodes / taken
        say(f"{name}: {rate:,.0f} private episodes a second ({given.episodes} episodes of all seeds in {taken:.2f} s)")
        cost = episode_cost(program, env, given.seeds)
        reached = [count * given.episodes / taken for count in cost]
        say(
            f"{name}: an episode of one seed moves {cost.bytes / given.seeds / 1e6:.3f} MB and takes "
            f"{cost.flops / given.seeds / 1e6:.3f} MFLOP by XLA's count: {reached[0] / 1e9:,.1f} GB/s "
            f"({reached[0] / bandwidth:.0%} of the peak) and {reached[1] / 1e9:,.1f} GFLOP/s "
            f"({reached[1] / flops:.1%} of the peak)"
        )


if __name__ == "__main__":
    main()
