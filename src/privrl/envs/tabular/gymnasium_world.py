"""Tabular Gymnasium environments, read from the transition table `env.unwrapped.P`.

An episode that Gymnasium ends early stays in an absorbing state here until the horizon. If every state in which
episodes end is entered in no other way, those states themselves become absorbing (FrozenLake's holes and goal already
are); otherwise one more state is added.

**Rewards** in [0, 1] are left alone. Otherwise, with lo = min(0, smallest reward) and hi = max(0, largest reward), they
become (r - lo)/(hi - lo), *including* the reward 0 of the absorbing states. Every episode then has exactly H steps, so
returns are (return - H lo)/(hi - lo): the order of policies is untouched, whenever an episode ends. When lo < 0 waiting
in an absorbing state pays -lo/(hi - lo) per step, so episodes are not cut there (`terminal` is empty).
"""

import jax.numpy as jnp
import numpy as np

from privrl.envs.base import Env, check_at_least, make_finite_env
from privrl.mdp.types import TabularMDP

TransitionTable = dict[int, dict[int, list[tuple[float, int, float, bool]]]]


def _load(id: str, arguments: dict[str, object]) -> tuple[TransitionTable, np.ndarray]:
    import gymnasium

    try:
        env = gymnasium.make(id, **arguments)  # type: ignore[arg-type]
    except gymnasium.error.Error as error:
        raise ValueError(f"Gymnasium cannot make `{id}`: {error}") from error
    try:
        P = getattr(env.unwrapped, "P", None)
        initial = getattr(env.unwrapped, "initial_state_distrib", None)
    finally:
        env.close()
    if P is None or initial is None:
        raise ValueError(
            f"`gym:{id}` has no transition table `P` with an initial distribution, so its values cannot be computed "
            "exactly. Use a tabular environment such as `gym:FrozenLake-v1` or `gym:CliffWalking-v1`."
        )
    table = {
        int(s): {
            int(a): [(float(p), int(t), float(r), bool(end)) for p, t, r, end in out] for a, out in choices.items()
        }
        for s, choices in P.items()
    }
    return table, np.asarray(initial, float)


def _endings(P: TransitionTable, initial: np.ndarray) -> tuple[set[int], bool]:
    """The states in which episodes end, and whether any of them is also entered, or started from, without ending."""
    reached = {int(s) for s in np.flatnonzero(initial)}
    frontier, ends, passed = list(reached), set(), set(reached)
    while frontier:
        for outcomes in P[frontier.pop()].values():
            for p, after, _, done in outcomes:
                if p > 0 and done:
                    ends.add(after)
                elif p > 0:
                    passed.add(after)
                    if after not in reached:
                        reached.add(after)
                        frontier.append(after)
    return ends, bool(ends & passed)


def FromGymnasium(id: str, horizon: int = 20, **arguments: object) -> Env:
    """A tabular Gymnasium environment by its id, with one-hot features.

    Arguments:
        id: for example `FrozenLake-v1`.
        horizon: steps per episode.
        **arguments: passed to `gymnasium.make`, for example `map_name="8x8"`.
    """
    H = check_at_least("horizon", horizon, 1)
    table, initial = _load(id, arguments)
    ends, ambiguous = _endings(table, initial)
    S, A = len(table) + ambiguous, len(table[0])
    if ambiguous:
        ends, initial = {S - 1}, np.append(initial, 0.0)

    P, r = np.zeros((S, A, S)), np.zeros((S, A))
    payments: dict[int, set[float]] = {}
    for s, choices in table.items():
        for a, outcomes in choices.items():
            for p, after, reward, done in outcomes:
                to = S - 1 if done and ambiguous else after
                if s not in ends and p > 0:
                    P[s, a, to] += p
                    r[s, a] += p * reward
                    payments.setdefault(to, set()).add(reward)
    gone = sorted(ends)
    P[gone], r[gone] = 0.0, 0.0
    P[gone, :, gone] = 1.0

    rewards = [reward for paid in payments.values() for reward in paid]
    lo, hi = min(0.0, *rewards), max(0.0, *rewards)
    if lo == 0.0 and hi <= 1.0:
        hi = 1.0
    arrival = None
    if lo == 0.0 and all(len(paid) == 1 for paid in payments.values()):
        arrival = jnp.asarray([next(iter(payments.get(s, {0.0}))) / hi for s in range(S)])
    P, r = P / P.sum(axis=-1, keepdims=True), (r - lo) / (hi - lo)
    return make_finite_env(
        f"gym:{id}",
        TabularMDP(jnp.asarray(P[None]), jnp.asarray(r[None]), jnp.asarray(initial / initial.sum()), H),
        arguments=(("horizon", H), *((k, tuple(v) if isinstance(v, list) else v) for k, v in arguments.items())),
        terminal=tuple(gone) if lo == 0.0 else (),
        arrival=arrival,
        rescaled=None if (lo, hi) == (0.0, 1.0) else (lo, hi),
    )
