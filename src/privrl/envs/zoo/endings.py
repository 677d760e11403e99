"""Endings: episodes that end by death or survival, and pay only there.

Every live state has a health x in [0, 1]. A step leads to one of a few states of similar health, or ends the episode:
by death with probability .15 (1 - x)^2 e^(-.5 q), by survival with probability .15 x^2 e^(.5 q), neither above .45,
where q(s, a) ~ N(0, 1) is the quality of the action there; the next state's probability is multiplied by e^(q (x' -
x)/.15). The quality of an action in one state is independent of that in another. The last two states are death and
survival. Only survival pays 1, so an episode that the horizon cuts off pays nothing, although the patient may have
survived.
"""

import jax.numpy as jnp
import numpy as np

from privrl.envs.base import Env, check_at_least, make_finite_env
from privrl.envs.zoo.clinicians import PracticeKind, draw_practice
from privrl.mdp.types import TabularMDP

_LEAVE, _NEAR, _SUCCESSORS = 0.15, 0.15, 8


def Endings(
    states: int = 60, actions: int = 4, horizon: int = 20, practice: PracticeKind = "habits", seed: int = 0
) -> Env:
    """Episodes that end by death or survival; only survival pays.

    Arguments:
        states: including death and survival, at least 4.
        actions: at least 2.
        horizon: steps per episode; a short one cuts off many episodes.
        practice: "habits", "expert" or "rare", see `privrl.envs.zoo.clinicians`.
        seed: the instance.
    """
    S, A, H = (
        check_at_least("states", states, 4),
        check_at_least("actions", actions, 2),
        check_at_least("horizon", horizon, 1),
    )
    rng = np.random.default_rng([seed, S, A])
    live, death, survival = S - 2, S - 2, S - 1
    x = rng.uniform(size=live)
    quality = rng.normal(size=(live, A))
    P = np.zeros((S, A, S))
    near = np.exp(-np.abs(x[:, None] - x) / _NEAR)
    for s in range(live):
        reached = rng.choice(live, min(_SUCCESSORS, live), replace=False, p=near[s] / near[s].sum())
        tilted = rng.exponential(size=len(reached)) * np.exp(quality[s, :, None] * (x[reached] - x[s]) / _NEAR)
        dies, survives = _LEAVE * (1 - x[s]) ** 2 * np.exp(-quality[s] / 2), _LEAVE * x[s] ** 2 * np.exp(quality[s] / 2)
        dies, survives = np.minimum(dies, 0.45), np.minimum(survives, 0.45)
        P[s, :, reached] = ((1 - dies - survives)[:, None] * tilted / tilted.sum(axis=-1, keepdims=True)).T
        P[s, :, death], P[s, :, survival] = dies, survives
    P[death, :, death] = P[survival, :, survival] = 1.0
    reward = np.where(np.arange(S)[:, None] < live, P[:, :, survival], 0.0)
    start = np.append(rng.dirichlet(np.ones(live)), [0.0, 0.0])
    mdp = TabularMDP(jnp.asarray(P[None]), jnp.asarray(reward[None]), jnp.asarray(start), H)
    return make_finite_env(
        "endings",
        mdp,
        behaviour=jnp.asarray(draw_practice(mdp, practice, rng)),
        arguments=(("states", S), ("actions", A), ("horizon", H), ("practice", practice)),
        seed=seed,
        terminal=(death, survival),
        arrival=jnp.asarray(np.eye(S)[survival]),
    )
