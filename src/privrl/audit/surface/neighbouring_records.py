"""Records of people, made to be as different from each other as a statistic lets them be.

An attacker may be anybody, so nothing here is a likely person: every record of a tiny world, extreme rewards, the
longest and the empty one, and records that break every rule (out of range, infinite, not a number, too long).
"""

import itertools
from typing import Any

import jax
import numpy as np

from privrl.audit.surface.adversarial_measurements import adversarial_measurements
from privrl.audit.surface.adversarial_records import REWARDS, adversarial_lq_records, adversarial_records
from privrl.envs.base import Env
from privrl.envs.lq_worlds import LQEnv
from privrl.envs.patients.patient_world import AbstractPatients
from privrl.mdp.types import Trajectory


def pool(env: Env | LQEnv | AbstractPatients, rng: np.random.Generator, limit: int = 6000) -> Any:
    """Records of one world, stacked: all of them where there are at most `limit`, otherwise many; and hostile ones."""
    if isinstance(env, LQEnv):
        return _linear(env, rng)
    if isinstance(env, AbstractPatients):
        return _measured(env, rng)
    sizes = (env.horizon, env.num_states, env.num_actions)
    whole = _every(*sizes) if _count(*sizes) <= limit else _random(*sizes, rng, limit // 4)
    return joined(whole, adversarial_records(*sizes, seed=int(rng.integers(2**31))))


def joined(*parts: Any) -> Any:
    """Stacked records, one after another."""
    return jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves]), *parts)


def picked(records: Any, index: int | slice | np.ndarray) -> Any:
    """One record, or some of them."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[index], records)


def mutated(records: Any, rng: np.random.Generator) -> Any:
    """The same records, each with something changed: single entries or whole arrays, a little or beyond all bounds."""

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


def wide(records: Any) -> Any:
    """The same records in 64 bits, as all arithmetic here is."""
    return jax.tree.map(lambda x: np.asarray(x, np.float64 if np.asarray(x).dtype.kind == "f" else np.int64), records)


def bytes_of(content: Any) -> bytes:
    """All numbers of a record, a policy or a sum; none of nothing."""
    return b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(content))


def _count(horizon: int, num_states: int, num_actions: int) -> int:
    return sum(num_states ** (n + 1) * num_actions**n * 2**n for n in range(horizon + 1))


def _every(horizon: int, num_states: int, num_actions: int) -> Trajectory:
    """All episodes of every length, with rewards 0 and 1 in every combination."""
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
    """Walks that jump, and walks that never move: both ends of what an episode can visit."""
    s = rng.integers(num_states, size=(count, horizon + 1))
    a = rng.integers(num_actions, size=(count, horizon))
    still = rng.random(count) < 0.4
    s[still], a[still] = s[still, :1], a[still, :1]
    r = rng.choice([0.0, 1.0], size=(count, horizon))
    r[: count // 2] = r[: count // 2, :1]
    length = np.where(rng.random(count) < 0.8, horizon, rng.integers(0, horizon + 1, count))
    return Trajectory(s[:, :-1], a, r, s[:, 1:], length)


def _measured(env: AbstractPatients, rng: np.random.Generator, count: int = 300) -> Trajectory:
    """People of one stay each as they are treated now, then changed; and hostile ones."""
    seeds = rng.integers(2**31, size=2)
    stays = env.sample(env.behaviour_policy(), count, jax.random.key(int(seeds[0])))
    people = jax.tree.map(lambda x: np.asarray(x)[:, None], stays)
    hostile = adversarial_measurements(env.horizon, env.columns, env.num_actions, seed=int(seeds[1]))
    return joined(people, mutated(people, rng), hostile)


def _linear(env: LQEnv, rng: np.random.Generator, count: int = 300) -> Any:
    """Episodes of a linear system under its own dynamics, then scaled and broken."""
    keys = jax.random.split(jax.random.key(int(rng.integers(2**31))), count)
    records = jax.tree.map(np.asarray, jax.jit(jax.vmap(env.rollout, in_axes=(None, 0)))(env.zero_policy(), keys))
    sizes = (env.horizon, records.states.shape[-1], records.inputs.shape[-1])
    return joined(records, mutated(records, rng), adversarial_lq_records(*sizes, seed=int(rng.integers(2**31))))
