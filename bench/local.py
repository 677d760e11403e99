"""`python -m bench.local`: what one person pays under local privacy, in bytes and in time: counts, dense moments.

Both are reports for real people, noise on whole numbers from cryptographic randomness, for RiverSwim with 5 states: one
answer of `UCBVI` against the moments of LDP-UCRL-VTR with one-hot features, all of Lambda as published.
"""

import time
from typing import Any

import jax

import privrl
from bench.timing import Row
from privrl.contracts.learner import AbstractOnlineLearner
from privrl.learners.linear.ucrl_vtr import UCRLVTR
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.privatizers import Local
from privrl.studies.local.wire import Broadcast

WORLD = privrl.envs.RiverSwim(states=5)
COUNTS = (privrl.UCBVI(WORLD.rewards, WORLD.horizon), Local(epsilon=1.0))
DENSE = (UCRLVTR(WORLD.rewards, WORLD.horizon, calibration="paper"), Local(epsilon=1.0, delta=1e-6))


def asked(learner: AbstractOnlineLearner, privatizer: Local) -> tuple[Broadcast, Any]:
    """A broadcast and how it went for somebody."""
    broadcast = privrl.Server(learner, privatizer, num_users=100).broadcast()
    return broadcast, WORLD.rollout(broadcast.plan.policy, jax.random.key(0))


def seconds(learner: AbstractOnlineLearner, privatizer: Local, repeats: int = 15) -> float:
    """The best processor time of a report, from trajectory to bytes, by a client that exists already.

    Kept in memory: the disk is not measured here.
    """
    broadcast, trajectory = asked(learner, privatizer)
    times = []
    for _ in range(repeats):
        with ReleaseStore.in_memory() as store:
            client = privrl.Client(learner, privatizer, store=store)
            began = time.process_time()
            client.report(trajectory, broadcast).to_bytes()
            times.append(time.process_time() - began)
    return min(times)


def report_time() -> Row:
    """Seconds of one report."""
    return "a local report, 5 states: dense moments / counts", seconds(*DENSE), seconds(*COUNTS)


def report_bytes() -> Row:
    """Not time but bytes of one report."""
    size = [privrl.Server(*pair, num_users=100).message_bytes for pair in (DENSE, COUNTS)]
    return "bytes of a local report, 5 states: dense moments / counts", float(size[0]), float(size[1])


if __name__ == "__main__":
    for row in (report_bytes, report_time):
        label, plain, ours = row()
        print(f"{label}: {plain:.4g} / {ours:.4g} = {plain / ours:.1f}")
