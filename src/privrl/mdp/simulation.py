"""Simulate people in a finite world: one by one, as counts of a block, or as a table.

- `rollout`: one episode, compiled; `vmap` it over keys.
- `flow`: how often a block of episodes under one policy used each (h, s, a, s'). Given how many episodes are in state
  s, how many of them take a and move to s' is multinomial with probabilities pi_h(a|s) P_h(s'|s,a), so the counts are
  drawn exactly, stage by stage, at a cost that does not depend on the number of episodes.
- `sample_episodes`: very many whole episodes on the host, for offline data.

Rewards are the mean rewards `mdp.reward[h, s, a]`. If a world pays its reward on *entering* a state (a goal, survival),
pass `arrival [S]`: then a step pays `arrival[s']`, which is the reward its user would observe. Episodes end on entering
a state of `terminal`, a public set; the last recorded step is the one that enters it. With `arrival`, steps that start
in a terminal state pay nothing.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Float32, Int, Real

from privrl.mdp.multinomial import AnyKey, multinomial
from privrl.mdp.planning import Stage, scan_stages
from privrl.mdp.types import TabularMDP, TabularPolicy, Trajectory, Transitions


def _pick(probability: Float[Array, " K"], u: Float[Array, ""]) -> Int[Array, ""]:
    """The outcome at which the distribution function passes u; never one of probability zero."""
    possible = probability > 0
    # A parallel prefix sum may decrease in the last bit. So only possible outcomes are candidates, and the largest
    # value serves as the total: then u < 1 always finds an outcome.
    cumulative = jnp.where(possible, jnp.cumsum(probability), 0.0)
    return jnp.argmax(possible & (cumulative > u * cumulative.max()))


def _is_terminal(num_states: int, terminal: Sequence[int]) -> np.ndarray:
    mask = np.zeros(num_states, bool)
    mask[list(terminal)] = True
    return mask


def _coins(key: AnyKey, horizon: int) -> Float[Array, "steps 2"]:
    """Two uniform numbers per step for the action and the next state, after two for the first state."""
    return jr.uniform(key, (horizon + 1, 2))


def action_draw(key: AnyKey, horizon: int, step: int) -> Float[Array, ""]:
    """The uniform number with which `rollout` with this key draws its action at `step`."""
    return _coins(key, horizon)[step + 1, 0]


def cumulative_table(policy: TabularPolicy) -> Float[np.ndarray, "H S A"]:
    """The distribution function of each (step, state), on the host; 0 for actions of probability 0.

    Raises:
        ValueError: the policy has rules that need the previous action, which a table does not know.
    """
    if policy.rules.need_previous:
        raise ValueError("The rules of this policy need the previous action. Use `ExportedPolicy(policy.to_json())`.")
    probabilities = np.asarray(policy.probabilities)
    return np.where(probabilities > 0, np.cumsum(probabilities, axis=-1), 0.0)


def draw_action(table: Float[np.ndarray, "H S A"], state: int, step: int, u: float) -> int:
    """Draw an action from a `cumulative_table` with a uniform number in [0, 1), as `rollout` does."""
    row = table[step, state].tolist()
    u_of_all = u * max(row)
    return next(action for action, value in enumerate(row) if value > u_of_all)


@eqx.filter_jit
def rollout(
    mdp: TabularMDP,
    policy: TabularPolicy,
    key: AnyKey,
    *,
    terminal: Sequence[int] = (),
    arrival: Float[Array, " S"] | None = None,
) -> Trajectory:
    """Simulate one episode. Its `length` is the horizon, or the step that entered `terminal`."""
    ends = jnp.asarray(_is_terminal(mdp.num_states, terminal))

    def body(carry: tuple[Array, Array], x: tuple[Array, Array], stage: Stage) -> tuple[tuple[Array, Array], tuple]:
        s, alive = carry
        pi, u = x
        P, r = stage
        a = _pick(pi[s], u[0])
        after = _pick(P[s, a], u[1])
        reward = r[s, a] if arrival is None else jnp.where(ends[s], 0.0, arrival[after])
        return (after, alive & ~ends[after]), (s, a, reward, after, alive)

    u = _coins(key, mdp.horizon)
    s = _pick(mdp.initial, u[0, 0])
    _, (states, actions, rewards, after, alive) = scan_stages(mdp, body, (s, ~ends[s]), (policy.probabilities, u[1:]))
    return Trajectory(states, actions, rewards, after, alive.sum())


def flow(
    mdp: TabularMDP, policy: TabularPolicy, episodes: int | Real[Array, ""], key: AnyKey
) -> Float[Array, "H S A S"]:
    """Draw how often `episodes` independent episodes under one policy use each (step, state, action, next state).

    Arguments:
        mdp: the world.
        policy: the policy of the whole block.
        episodes: the length of the block, any whole number; may be traced. The work does not depend on it.
        key: randomness of the block.

    Returns:
        whole numbers; each stage adds up to `episodes` exactly.
    """
    return _flow(mdp, policy, jnp.asarray(episodes, float), key)


@eqx.filter_jit
def _flow(mdp: TabularMDP, policy: TabularPolicy, episodes: Float[Array, ""], key: AnyKey) -> Float[Array, "H S A S"]:
    def body(n: Array, x: tuple[Array, Array], stage: Stage) -> tuple[Array, Array]:
        pi, stage_key = x
        joint = pi[:, :, None] * stage[0]
        moved = multinomial(stage_key, n, joint.reshape(mdp.num_states, -1)).reshape(joint.shape)
        return moved.sum(axis=(0, 1)), moved

    keys = jr.split(key, mdp.horizon + 1)
    n = multinomial(keys[0], episodes, mdp.initial)
    _, counts = scan_stages(mdp, body, n, (policy.probabilities, keys[1:]))
    return counts


@eqx.filter_jit
def flow_transitions(
    mdp: TabularMDP,
    counts: Float[Array, "H S A S"],
    *,
    terminal: Sequence[int] = (),
    arrival: Float[Array, " S"] | None = None,
) -> Transitions:
    """The counts of a `flow` as rows, one per cell; steps that start in a terminal state are not counted."""
    h, s, a, after = jnp.indices(counts.shape)
    counts = jnp.where(jnp.asarray(_is_terminal(mdp.num_states, terminal))[s], 0.0, counts)
    paid = jnp.broadcast_to(mdp.reward, counts.shape[:3])[..., None] if arrival is None else arrival[after]
    return Transitions(*(column.ravel() for column in (h, s, a, after, counts, counts * paid)))


class _Distributions:
    """Many distributions over the same outcomes, ready for inversion; only outcomes of positive probability are
    stored."""

    def __init__(self, probability: np.ndarray) -> None:
        rows = probability.reshape(-1, probability.shape[-1])
        row, self.outcome = np.nonzero(rows)
        self.start = np.searchsorted(row, np.arange(len(rows)))
        self.stop = np.searchsorted(row, np.arange(len(rows)), side="right")
        self.cumulative = np.concatenate([np.cumsum(p[p > 0]) for p in rows])
        self.total = self.cumulative[self.stop - 1]

    def draw(self, row: np.ndarray, u: np.ndarray) -> np.ndarray:
        """For each entry, the first outcome of its row whose cumulative probability exceeds u, by bisection."""
        target = u * self.total[row]
        low, high = self.start[row], self.stop[row] - 1
        for _ in range(int(np.ceil(np.log2(np.max(self.stop - self.start)))) + 1):
            middle = (low + high) // 2
            above = self.cumulative[middle] > target
            high = np.where(above, middle, high)
            low = np.where(above | (low == high), low, middle + 1)
        return self.outcome[high]


def sample_episodes(
    mdp: TabularMDP,
    policy: TabularPolicy,
    episodes: int,
    key: AnyKey,
    *,
    terminal: Sequence[int] = (),
    arrival: Float[Array, " S"] | None = None,
    chunk: int = 1 << 16,
) -> Trajectory:
    """Draw a batch of whole episodes `[episodes, H]` on the host: seconds for 1e5 episodes in a world of 716 states.

    Arguments:
        mdp: the world.
        policy: the policy of all episodes.
        episodes: the number of episodes.
        key: seeds a counter-based NumPy generator; the same key gives the same table, whatever `chunk` is.
        terminal: the public set of states that end an episode on entry.
        arrival: rewards paid on entering a state, instead of the mean rewards.
        chunk: episodes in memory at once, in addition to the result.
    """
    H, S = mdp.horizon, mdp.num_states
    P, r = np.asarray(mdp.transition), np.asarray(mdp.reward)
    G, A = P.shape[0], mdp.num_actions
    ends = _is_terminal(S, terminal)
    initial, acting, moving = (
        _Distributions(np.asarray(mdp.initial)),
        _Distributions(np.asarray(policy.probabilities)),
        _Distributions(P),
    )
    bonus = None if arrival is None else np.asarray(arrival)
    seed = [int(word) for word in np.asarray(jr.key_data(key)).ravel()]

    states, after = np.zeros((episodes, H), np.int32), np.zeros((episodes, H), np.int32)
    actions, rewards = np.zeros((episodes, H), np.int32), np.zeros((episodes, H))
    length = np.zeros(episodes, np.int32)
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed)))
    for begin in range(0, episodes, chunk):
        end = min(begin + chunk, episodes)
        u = rng.random((end - begin, 2 * H + 1))
        s = initial.draw(np.zeros(end - begin, int), u[:, 0])
        states[begin:end] = after[begin:end] = s[:, None]  # padding repeats the last state: always a valid one
        alive = np.flatnonzero(~ends[s])
        s = s[alive]
        for h in range(H):
            a = acting.draw(h * S + s, u[alive, 2 * h + 1])
            g = h if G > 1 else 0
            nxt = moving.draw((g * S + s) * A + a, u[alive, 2 * h + 2])
            at = begin + alive
            actions[at, h] = a
            rewards[at, h] = r[g, s, a] if bonus is None else bonus[nxt]
            after[at, h:] = nxt[:, None]
            states[at, h + 1 :] = nxt[:, None]
            length[at] = h + 1
            on = ~ends[nxt]
            alive, s = alive[on], nxt[on]
    table = [jax.device_put(x) for x in (states, actions, rewards, after, length)]
    return Trajectory(*table)


def simulate_normals(seed: int, shape: tuple[int, ...]) -> Float32[np.ndarray, "..."]:
    """Standard normal numbers from a public seed, on the host: the same in every process. Never use them for noise."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32)
