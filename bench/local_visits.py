"""`python -m bench.local_visits`: people who come m times under local privacy: how should their reports share epsilon?

Each device reports j of its m visits, chosen at random in advance, with epsilon/j each: j = m is a report from every
visit, j = 1 one report at a random visit, with the whole epsilon. Visits that are not reported act on the plan like all
others. A block that fills with n reports is n m/j visits, so regret per visit is that of a run with j/m as many people
and epsilon/j: nothing else has to be simulated. Printed are shares of the uniform policy's regret, mean and standard
error over seeds.
"""

import argparse

import jax
import numpy as np

import privrl


def share(
    states: int, visits: int, epsilon: float, times: int, reported: int, seeds: int, key: int
) -> tuple[float, float]:
    """Regret over the uniform policy's, for so many visits of people who come `times` times and report some of them."""
    world = privrl.envs.RiverSwim(states=states)
    learner, privatizer = privrl.UCBVI(world.rewards, world.horizon), privrl.Local(epsilon=epsilon / reported)
    reports = visits * reported // times
    found = privrl.run(world, learner, privatizer, episodes=reports, seeds=seeds, key=jax.random.key(key))
    shares = found.total_regret / (reports * float(world.regret(world.uniform_policy())))
    return float(shares.mean()), float(shares.std(ddof=1) / np.sqrt(seeds))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--visits", type=int, default=40_000)
    parser.add_argument("--times", type=int, default=4, help="m, how often each person comes")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=20261116)
    given = parser.parse_args()
    choices = [j for j in (1, 2, 4, 8, 16) if j <= given.times]
    print("states, epsilon", *(f"j = {j}" for j in choices), sep=" | ")
    for states in (3, 5):
        for epsilon in (1.0, 2.0, 5.0, 10.0, 20.0):
            cells = [share(states, given.visits, epsilon, given.times, j, given.seeds, given.seed) for j in choices]
            written = (f"{mean:.4f} ± {error:.4f}" for mean, error in cells)
            print(f"{states}, {epsilon:g}", *written, sep=" | ", flush=True)
