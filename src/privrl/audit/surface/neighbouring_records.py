"""Records of people that differ from each other as much as a statistic allows.

An attacker may contribute any record, so these are not likely people: every record of a tiny world, extreme
rewards, the longest and the empty record, and records that break every rule (out of range, infinite, NaN, too
long).
"""

import itertools
from typing import TypeVar

import jax
import numpy as np

from privrl.audit.surface.adversarial_measurements import adversarial_measurements
from privrl.audit.surface.adversarial_records import REWARDS, adversarial_lq_records, adversarial_records
from privrl.envs.base import Env
from privrl.envs.lq_worlds import LQEnv
from privrl.envs.patients.patient_world import AbstractPatients
from privrl.mdp.lq import LQTrajectory
from privrl.mdp.types import Trajectory
from privrl.statistics.arm_sums import Outcomes

AnyRecords = Trajectory | LQTrajectory | Outcomes
"""Stacked records of people."""
Stacked = TypeVar("Stacked")  # a pytree of stacked arrays


def make_record_pool(env: Env | LQEnv | AbstractPatients, rng: np.random.Generator, limit: int = 6000) -> AnyRecords:
    """Make stacked records of one world: all if there are at most `limit`, otherwise many; and malformed ones."""
    if isinstance(env, LQEnv):
        return _linear(env, rng)
    if isinstance(env, AbstractPatients):
        return _measured(env, rng)
    sizes = (env.horizon, env.num_states, env.num_actions)
    whole = _every(*sizes) if _count(*sizes) <= limit else _random(*sizes, rng, limit // 4)
    return join_records(whole, adversarial_records(*sizes, seed=int(rng.integers(2**31))))


def join_records(*parts: Stacked) -> Stacked:
    """Concatenate stacked records."""
    return jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves]), *parts)


def pick_records(records: Stacked, index: int | slice | np.ndarray) -> Stacked:
    """Pick one record, or some of them."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[index], records)


def mutate_records(records: Stacked, rng: np.random.Generator) -> Stacked:
    """Change each record: single entries or whole arrays, a little or beyond all bounds."""

    def change(leaf: np.ndarray) -> np.ndarray:
        leaf = np.array(leaf)
        each = (len(leaf),) + (1,) * (leaf.ndim - 1)
        where = rng.random(leaf.shape) < rng.choice([0.0, 0.2, 1.0], each, p=[0.4, 0.4, 0.2])
        if leaf.dtype.kind == "i":
            ordinary = leaf[(leaf > -(2**20)) & (leaf < 2**20)]  # what is beyond is in the running already
            low, high = int(ordinary.min(initial=0)) - 2, int(ordinary.max(initial=0)) + 2
            return np.where(where, rng.integers(low, high + 1, leaf.shape), leaf)
        kinds = [
            np.broadcast_to(rng.choice(REWARDS, each), leaf.shape),
            leaf * rng.choice([-1.0, 0.5, 2.0, 10.0], each),
            leaf + rng.choice([0.01, 0.1, 1.0], each) * rng.normal(size=leaf.shape),
            leaf[rng.permutation(len(leaf))],
        ]
        return np.where(where, np.choose(rng.integers(len(kinds), size=leaf.shape), kinds), leaf)

    with np.errstate(over="ignore", invalid="ignore"):
        return jax.tree.map(change, records)


def widen_records(records: Stacked) -> Stacked:
    """Convert records to 64 bits, the precision of all arithmetic of privrl."""
    return jax.tree.map(lambda x: np.asarray(x, np.float64 if np.asarray(x).dtype.kind == "f" else np.int64), records)


def leaf_bytes(content: object) -> bytes:
    """Return the bytes of all numbers in a record, a policy or a sum; no bytes for `None`."""
    return b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(content))


def _count(horizon: int, num_states: int, num_actions: int) -> int:
    return sum(num_states ** (n + 1) * num_actions**n * 2**n for n in range(horizon + 1))


def _every(horizon: int, num_states: int, num_actions: int) -> Trajectory:
    """Make all episodes of every length, with rewards 0 and 1 in every combination."""
    lines = []
    for n in range(horizon + 1):
        pad, ending = [0] * (horizon - n), [-1] * (horizon - n)
        choices = ((range(num_states), n + 1), (range(num_actions), n), ((0, 1), n))
        for states, actions, rewards in itertools.product(*(itertools.product(x, repeat=k) for x, k in choices)):
            lines.append([*states[:n], *pad, *actions, *pad, *rewards, *pad, *states[1:], *ending, n])
    table = np.array(lines).reshape(len(lines), -1)
    s, a, r, after = (table[:, i * horizon : (i + 1) * horizon] for i in range(4))
    return Trajectory(s, a, r.astype(float), after, table[:, -1])


def _random(horizon: int, num_states: int, num_actions: int, rng: np.random.Generator, count: int) -> Trajectory:
    """Make random walks, and walks that never move: both ends of what an episode can visit."""
    s = rng.integers(num_states, size=(count, horizon + 1))
    a = rng.integers(num_actions, size=(count, horizon))
    still = rng.random(count) < 0.4
    s[still], a[still] = s[still, :1], a[still, :1]
    r = rng.choice([0.0, 1.0], size=(count, horizon))
    r[: count // 2] = r[: count // 2, :1]
    length = np.where(rng.random(count) < 0.8, horizon, rng.integers(0, horizon + 1, count))
    return Trajectory(s[:, :-1], a, r, s[:, 1:], length)


def _measured(env: AbstractPatients, rng: np.random.Generator, count: int = 300) -> Trajectory:
    """Make people with one episode each under current practice, changed copies of them, and malformed ones."""
    seeds = rng.integers(2**31, size=2)
    stays = env.sample(env.behaviour_policy(), count, jax.random.key(int(seeds[0])))
    people = jax.tree.map(lambda x: np.asarray(x)[:, None], stays)
    hostile = adversarial_measurements(env.horizon, env.columns, env.num_actions, seed=int(seeds[1]))
    return join_records(people, mutate_records(people, rng), hostile)


def _linear(env: LQEnv, rng: np.random.Generator, count: int = 300) -> LQTrajectory:
    """Make episodes of a linear system under its own dynamics, changed copies of them, and malformed ones."""
    keys = jax.random.split(jax.random.key(int(rng.integers(2**31))), count)
    records = jax.tree.map(np.asarray, jax.jit(jax.vmap(env.rollout, in_axes=(None, 0)))(env.zero_policy(), keys))
    sizes = (env.horizon, records.states.shape[-1], records.inputs.shape[-1])
    return join_records(
        records, mutate_records(records, rng), adversarial_lq_records(*sizes, seed=int(rng.integers(2**31)))
    )
