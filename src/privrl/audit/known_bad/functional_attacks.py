"""Three attacks on Q-learning with functional noise (wang-hegde, Algorithm 1 and Theorem 4).

The secret is the reward function: any two with |r| <= r_0 are neighbours. The theorem releases z_j = Q_j + g_j after
each of n = T/B updates, g_j a fresh path of the Gaussian process, bounds ‖Q_j - Q_j'‖_H for *one* update, and composes
n of these. Three steps of that proof fail, each on its own:

- **batch**: the update moves by 2 r_0 α/B, as if one reward of the batch changed. All B do.
- **memory**: Q_j and Q_j' are compared "given that Q_0 is fixed by the previous step". What was released is Q_0 + g_0;
  what the algorithm continues with is Q_0, which was not released and differs between the worlds.
- **one path**: with J = 1 the noise stays the same, and F = Q + g obeys the noise-free recursion of Q-learning. Q
  learns -g, and what is released tends to Q*, exactly.

Everything except the flaw is corrected, so that the attack breaks nothing else. Q is linear in tents φ, so one
transition with reward r moves Q_a by α/B r κ(s, .) with κ(x, y) = φ(x)ᵀφ(y), and one update by at most 2 r_0 α max_x
‖κ(x, .)‖_H: the norm is computed, not bounded through a Lipschitz constant. Noise is exact for (epsilon, delta) = (1,
1e-5) under that sensitivity and n-fold composition (`gdp_mu`), where the theorem has an approximation. Every run draws
its own walk and its own noise, and no attack looks at anything but releases.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from privrl.audit.known_bad.case import DELTA, EPSILON, Audited, audit_by_counting, case, score_both_worlds
from privrl.audit.known_bad.functional_q import (
    LARGEST_REWARD,
    LONGEST_MOVE,
    STEPS,
    Batch,
    Settings,
    descent,
    tents,
    walk,
)
from privrl.envs.tabular.interval_walk import IntervalWalk
from privrl.privacy.accounting.gdp import gdp_mu
from privrl.privacy.functions.paths import mesh_path, whiten
from privrl.privacy.functions.released import rkhs_norm

_ONE_UPDATE = Settings(samples=100, batch=100, learning_rate=1.0, knots=3, depth=4)
_STEPS_OF_MEMORY = 400
_MEMORY = Settings(samples=4, batch=4, learning_rate=0.005, knots=3, depth=2)
_TABLE = Settings(samples=16, batch=16, learning_rate=4.0, discount=0.5, knots=9, depth=3)
_UPDATES_OF_TABLE = 200


def largest_move(settings: Settings) -> float:
    """Return max ‖ΔQ‖_H of one update when all its rewards change from -r_0 to r_0: 2 r_0 α max_x ‖κ(x, .)‖_H.

    The norm of the mean of B functions ± κ(x_t, .), each for one of the actions, is at most the largest of their
    norms.
    """
    phi = tents(settings)
    longest = max(float(rkhs_norm(row, settings.beta)) for row in phi @ phi.T)
    return 2 * LARGEST_REWARD * settings.learning_rate * longest


def noise_for(sensitivity: float, releases: int) -> float:
    """Return the scale at which `releases` releases of this sensitivity, composed, are exactly (1, 1e-5)-private."""
    return sensitivity * math.sqrt(releases) / gdp_mu(EPSILON, DELTA)


def _extreme(world: Int[Array, ""], settings: Settings) -> Float[Array, " B"]:
    """Return the rewards of a batch: -r_0 everywhere in world 0, r_0 everywhere in world 1."""
    return jnp.full(settings.batch, LARGEST_REWARD) * jnp.where(world == 1, 1.0, -1.0)


def _greedy_batch(
    key: PRNGKeyArray, F: Float[Array, "2 n"], s: Float[Array, ""], settings: Settings, number: Int[Array, ""]
) -> tuple[Float[Array, ""], Batch]:
    B = settings.batch
    u = jax.random.uniform(key, (B + 1 + B // STEPS,))
    return walk(F, s, LONGEST_MOVE * u[:B], u[B:], number * B)


def _path(key: PRNGKeyArray, scale: float, settings: Settings) -> Float[Array, "2 n"]:
    return scale * mesh_path(jax.random.normal(key, (2, 2**settings.depth + 1)), settings.beta)


def level_score(F: Float[Array, "*m 2 n"], beta: float) -> Float[Array, "*m"]:
    """Return the sum over actions of ⟨F_a, 1⟩_H: the best linear test for a shift of F by a constant."""
    whitened_one = whiten(jnp.ones(F.shape[-2:]), beta)
    return (whiten(F, beta) * whitened_one).sum(axis=(-2, -1))


@case(
    paper="wang-hegde A1:21, Theorem 4",
    trials=4_000,
    flaw="noise for one changed reward per batch, 1/B of the update, where the secret is the whole reward function",
    proof="‖ΔQ‖ = ‖(α/B) Σₜ Δr(sₜ) κ(sₜ,·)‖ has B terms that all change: B times the 2αr₀/B of the proof",
)
def functional_noise_batch(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """One update, one release Q_1 + g_1: does its level show whether all rewards were r_0 or -r_0?

    Noise for the sensitivity of one reward in the batch, as printed, or of all of them.
    """
    settings = _ONE_UPDATE
    scale = noise_for(largest_move(settings) / (settings.batch if flawed else 1), 1)  # [wang-hegde Theorem 4] known bad

    def score(key: PRNGKeyArray, world: Int[Array, ""]) -> Float[Array, ""]:
        before, after, of_start, of_batch = jax.random.split(key, 4)
        F = _path(before, scale, settings)  # Q_0 = 0
        _, batch = _greedy_batch(of_batch, F, jax.random.uniform(of_start), settings, jnp.asarray(0))
        Q = descent(F, batch, _extreme(world, settings), settings) @ tents(settings).T
        return level_score(Q + _path(after, scale, settings), settings.beta)

    return audit_by_counting(
        score_both_worlds(score, key, trials), detail=f"one update from {settings.batch} transitions"
    )


@case(
    paper="wang-hegde A1:21, Theorem 4",
    trials=4_000,
    flaw="Q is carried to the next update without the noise that it was released with, so updates do not compose",
    proof="Qⱼ - Qⱼ' is the sum of j changes, under noise for one: μ² = Σⱼ (jΔ/σ)², not nΔ²/σ²",
)
def functional_noise_memory(key: PRNGKeyArray, trials: int, *, flawed: bool, steps: int = _STEPS_OF_MEMORY) -> Audited:
    """`steps` releases Q_j + g_j, each with noise for all of its own update and for their composition.

    As printed the next update starts from Q_j; corrected, from Q_j + g_j, for which the composition would hold. The
    drift of the rewards adds up in Q_j and the noise does not, so later releases reveal more: the score is sum_j j
    level(z_j).
    """
    settings = _MEMORY
    scale = noise_for(largest_move(settings), steps)
    phi = tents(settings)

    def score(key: PRNGKeyArray, world: Int[Array, ""]) -> Float[Array, ""]:
        def step(
            carry: tuple[Array, Array, Array], x: tuple[Array, PRNGKeyArray]
        ) -> tuple[tuple[Array, Array, Array], Array]:
            (Q, F, s), (j, key) = carry, x
            of_path, of_batch = jax.random.split(key)
            s, batch = _greedy_batch(of_batch, F, s, settings, j)
            start = Q if flawed else F  # [wang-hegde A1:21] Q is kept, Q + g is released; known bad
            Q = start + descent(F, batch, _extreme(world, settings), settings) @ phi.T
            F = Q + _path(of_path, scale, settings)
            return (Q, F, s), (j + 1.0) * level_score(F, settings.beta)

        start_key, path_key, steps_key = jax.random.split(key, 3)
        Q = jnp.zeros((2, phi.shape[0]))
        begin = (Q, _path(path_key, scale, settings), jax.random.uniform(start_key))
        return jax.lax.scan(step, begin, (jnp.arange(steps), jax.random.split(steps_key, steps)))[1].sum()

    return audit_by_counting(score_both_worlds(score, key, trials), detail=f"{steps} updates")


def rewards_of_worlds() -> Float[np.ndarray, "2 n"]:
    """Return the rewards of the interval walk, and the same less a tent of height 0.2 over its left half."""
    place = np.linspace(0.0, 1.0, _TABLE.knots)
    paid = LARGEST_REWARD - np.abs(place - 0.5)
    return np.stack([paid, paid - 0.2 * np.maximum(1 - 4 * np.abs(place - 0.25), 0.0)])


def optimal_functions() -> Float[Array, "2 2 n"]:
    """Compute Q* of both worlds `[world, action, place]`, discounted, by value iteration on the mesh."""
    P, r = IntervalWalk(_TABLE.depth).mdp.transition[0], jnp.asarray(rewards_of_worlds())

    def back(Q: Float[Array, "2 2 n"], _: None) -> tuple[Float[Array, "2 2 n"], None]:
        return jnp.einsum("sat,wt->was", P, r + _TABLE.discount * Q.max(axis=1)), None

    return jax.lax.scan(back, jnp.zeros((2, 2, P.shape[0])), length=100)[0]


def one_path_scale(in_rewards: bool) -> float:
    """Return the noise of `release_with_one_path`: for all updates, composed, or for one release of the reward
    function.
    """
    if not in_rewards:
        return noise_for(largest_move(_TABLE), _UPDATES_OF_TABLE)
    r = jnp.asarray(rewards_of_worlds())
    return noise_for(float(rkhs_norm(r[1] - r[0], _TABLE.beta)), 1)


def release_with_one_path(
    key: PRNGKeyArray, world: Int[Array, ""], scale: float, *, in_rewards: bool
) -> tuple[Float[Array, "2 n"], Float[Array, "2 n"]]:
    """Train with one path throughout (J = 1), and return the released function and the path: (Q + g, g).

    Q is a table on the mesh, and transitions come from everywhere, as under exploration or replay, which the paper
    covers. With `in_rewards` the path is added to the reward function before training instead: everything after
    that is post-processing.
    """
    of_path, of_batches = jax.random.split(key)
    last, B = _TABLE.knots - 1, _TABLE.batch
    g = _path(of_path, scale, _TABLE)  # [wang-hegde A1:5-7] with J = 1: known bad
    paid = jnp.asarray(rewards_of_worlds())[world] + (g[0] if in_rewards else 0.0)

    def update(Q: Float[Array, "2 n"], key: PRNGKeyArray) -> tuple[Float[Array, "2 n"], None]:
        of_states, of_actions, of_moves = jax.random.split(key, 3)
        states = jnp.round(last * jax.random.uniform(of_states, (B,))) / last
        actions = jax.random.randint(of_actions, (B,), 0, 2)
        move = jax.random.uniform(of_moves, (B,), maxval=LONGEST_MOVE)
        after = jnp.clip(states + jnp.where(actions == 1, move, -move), 0.0, 1.0)
        rewards = paid[jnp.round(last * after).astype(int)]
        F = Q if in_rewards else Q + g
        return Q + descent(F, (states, actions, after), rewards, _TABLE), None  # with a knot per place, Q is theta

    Q, _ = jax.lax.scan(update, jnp.zeros((2, last + 1)), jax.random.split(of_batches, _UPDATES_OF_TABLE))
    return (Q if in_rewards else Q + g), g


@case(
    paper="wang-hegde A1:5-7",
    trials=2_000,
    flaw="with J = 1 the same path is in every target, and Q learns to cancel it",
    proof="F = Q + g obeys Q-learning without noise, so F → Q* whatever g is: nothing is hidden",
)
def functional_noise_one_path(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """Is the released function nearer to Q* of one reward function or of the other?"""
    optimal, scale = optimal_functions(), one_path_scale(not flawed)

    def score(key: PRNGKeyArray, world: Int[Array, ""]) -> Float[Array, ""]:
        F, _ = release_with_one_path(key, world, scale, in_rewards=not flawed)
        return ((F - optimal[0]) ** 2).sum() - ((F - optimal[1]) ** 2).sum()

    scores = score_both_worlds(score, key, trials)
    return audit_by_counting(scores, detail=f"{_UPDATES_OF_TABLE} updates; {trials} runs cannot prove a larger bound")


CASES = (functional_noise_batch, functional_noise_memory, functional_noise_one_path)
