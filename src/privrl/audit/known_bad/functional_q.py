"""Q-learning with functional noise (wang-hegde, Algorithm 1), its formulas corrected. **It is not private.**

It draws the paper's Figure 1 as a result about *learning*, and is the target of `functional_attacks`. J times in a run
a fresh path g_a of the Gaussian process with covariance sigma^2 exp(-beta |x - y|) is drawn for each action a, and
everything is done with F = Q + g in the place of Q:

    for batch j = 0 .. T/B - 1
        if j = 0 mod T/(JB): draw g                                                      [A1:5-7]
        for B steps: a_t = argmax_a F_a(s_t); see r_t, s_t+1                             [A1:10-11]
        y_t = r_t + γ max_a F_a(s_t+1),  δ_t = F_{a_t}(s_t) - y_t                        [A1:18-19]
        θ ← θ - α (1/B) sum_t δ_t ∇Q_{a_t}(s_t)                                          [A1:21]
    release F                                                                            [A1:25]

Corrected: the noise of the path (lines 14-15 have the two weights the wrong way round and a negative variance), its
variance sigma^2 d and not sigma d (16), t = jB + b and not jT/B + b (9), both noises inside the maximum (18), the noise
of the action that was taken (19), descent and not ascent (21). The idea remains wrong.

The paper does not print B, α, γ, β, T or its network; `Settings` has ours. Q_a is piecewise linear between equally
spaced knots, which is a network with one hidden layer of ReLU units whose first layer is fixed. Line 10 never
explores, so Q starts at the largest possible value, r_0/(1 - γ): what was not tried looks good. Episodes
end after 50 steps by the clock, not in a final state, so the last step looks ahead like any other. States move in
[0, 1]; functions (Q, g and F) are looked up at the nearest point of a mesh, on which all J paths are drawn whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from privrl.envs.tabular.interval_walk import IntervalWalk
from privrl.envs.tabular.interval_walk import tents as heights
from privrl.privacy.functions.paths import mesh_path

STEPS = 50
LONGEST_MOVE = 0.25
LARGEST_REWARD = 0.5
Batch = tuple[Float[Array, " B"], Int[Array, " B"], Float[Array, " B"]]  # states, actions and next states


@dataclass(frozen=True)
class Settings:
    """The settings of Algorithm 1 except the noise level and J.

    Arguments:
        samples, batch: T and B; B divides T.
        learning_rate, discount: α and γ.
        beta: the inverse length of the paths.
        knots: the number of points between which Q_a is piecewise linear; 2^depth + 1 of them make it a table.
        depth: functions live on the mesh of 2^depth cells.
    """

    samples: int = 100_000
    batch: int = 50
    learning_rate: float = 2.0
    discount: float = 0.9
    beta: float = 1.0
    knots: int = 17
    depth: int = 7

    def __post_init__(self) -> None:
        if self.batch < 1 or self.samples % self.batch:
            raise ValueError(
                f"`samples` is {self.samples} and `batch` is {self.batch}; use a positive `batch` that divides "
                "`samples`, so that all batches are full."
            )
        if not 0 <= self.discount < 1:
            raise ValueError(f"`discount` is {self.discount}; it must lie in [0, 1).")

    @property
    def batches(self) -> int:
        """T/B, the number of updates and the largest J."""
        return self.samples // self.batch


class Curves(eqx.Module):
    """Learning curves `[J, sigma, seed, evaluation]`: expected return over 50 steps, computed exactly on the mesh.

    `released` is the return of acting greedily on the output of line 25, Q + g; `kept` of acting greedily on Q,
    which is not released. `functions` are the last Q + g.
    """

    samples: Int[Array, " E"]
    released: Float[Array, "J N M E"]
    kept: Float[Array, "J N M E"]
    functions: Float[Array, "J N M 2 n"]


def train(
    key: PRNGKeyArray,
    sigmas: Sequence[float],
    seeds: int,
    refreshes: Sequence[int],
    *,
    settings: Settings | None = None,
    evaluations: int = 20,
) -> Curves:
    """Train all seeds, noise levels and numbers of paths J (`refreshes`) at once, each with a key of its own.

    Not private at any noise level: see the module. `evaluations` divides T/B; so does each J.
    """
    settings = settings or Settings()
    for name, parts in (("evaluations", (evaluations,)), ("refreshes", tuple(refreshes))):
        if any(part < 1 or settings.batches % part for part in parts):
            raise ValueError(f"`{name}` is {parts}; use divisors of the number of batches, {settings.batches}.")
    shape = (len(refreshes), len(sigmas), seeds)
    every = np.broadcast_to(settings.batches // np.asarray(refreshes)[:, None, None], shape).ravel()
    scale = np.broadcast_to(np.asarray(sigmas, float)[:, None], shape).ravel()
    keys = jax.random.split(key, every.size)
    kept, released = _trained(keys, jnp.asarray(scale), jnp.asarray(every), settings, evaluations)
    samples = jnp.arange(1, evaluations + 1) * (settings.samples // evaluations)
    of_released, of_kept = (greedy_return(F).reshape(shape + (evaluations,)) for F in (released, kept))
    return Curves(samples, of_released, of_kept, released[:, -1].reshape(shape + released.shape[2:]))


@jax.jit
def greedy_return(F: Float[Array, "*m 2 n"]) -> Float[Array, "*m"]:
    """Compute the exact return, over 50 steps from a uniform start, of acting greedily on functions on the mesh."""
    depth = (F.shape[-1] - 1).bit_length() - 1
    env = IntervalWalk(depth)
    P, paid, first = env.mdp.transition[0], env.arrival, env.mdp.initial
    assert paid is not None
    right = F[..., 1, :] > F[..., 0, :]
    paid = jnp.broadcast_to(paid, right.shape)

    def back(V: Float[Array, "*m n"], _: None) -> tuple[Float[Array, "*m n"], None]:
        return jnp.where(right, (paid + V) @ P[:, 1].T, (paid + V) @ P[:, 0].T), None

    V, _ = jax.lax.scan(back, jnp.zeros(right.shape), length=STEPS)
    return V @ first


def tents(settings: Settings) -> Float[Array, "n k"]:
    """Return the features at every mesh point: tents of height 1 around the knots."""
    return jnp.asarray(heights(np.linspace(0.0, 1.0, 2**settings.depth + 1), settings.knots))


def walk(
    F: Float[Array, "2 n"],
    s: Float[Array, ""],
    moves: Float[Array, " B"],
    starts: Float[Array, " e"],
    first_step: Int[Array, ""],
) -> tuple[Float[Array, ""], Batch]:
    """Act greedily on F for B steps; return the state afterwards, and the states, actions and next states on the way.

    The first step is number `first_step` of the run; after every 50th step the walk continues from the next of
    `starts`.
    """
    sign = jnp.where(F[1] > F[0], 1.0, -1.0)  # [wang-hegde A1:10]
    last = F.shape[1] - 1

    def step(s: Float[Array, ""], x: tuple[Array, Array, Array]) -> tuple[Array, tuple[Array, Array, Array]]:
        move, start, ends = x
        way = sign[jnp.round(s * last).astype(int)]
        after = jnp.clip(s + way * move, 0.0, 1.0)  # [wang-hegde A1:11]
        return jnp.where(ends, start, after), (s, (way > 0).astype(int), after)

    number = first_step + jnp.arange(1, moves.size + 1)
    next_start = starts[jnp.maximum(number // STEPS - first_step // STEPS - 1, 0)]
    return jax.lax.scan(step, s, (moves, next_start, number % STEPS == 0))


def descent(
    F: Float[Array, "2 n"], batch: Batch, rewards: Float[Array, " B"], settings: Settings
) -> Float[Array, "2 k"]:
    """Return what one step of gradient descent adds to theta, after a batch."""
    states, actions, after = batch
    phi, last = tents(settings), F.shape[1] - 1
    here, there = (jnp.round(x * last).astype(int) for x in (states, after))
    y = rewards + settings.discount * F.max(axis=0)[there]  # [wang-hegde A1:18] both noises inside the maximum
    error = F[actions, here] - y  # [wang-hegde A1:19] the noise of the action that was taken
    by_action = jnp.where(jnp.stack([actions == 0, actions == 1]), jnp.stack([error, error]), 0.0)
    return -settings.learning_rate / states.size * by_action @ phi[here]  # [wang-hegde A1:21] printed with a plus


@partial(jax.jit, static_argnames=("settings", "evaluations"))
def _trained(
    keys: Key[Array, " m"], sigmas: Float[Array, " m"], every: Int[Array, " m"], settings: Settings, evaluations: int
) -> tuple[Float[Array, "m E 2 n"], Float[Array, "m E 2 n"]]:
    return jax.vmap(partial(_one, settings=settings, evaluations=evaluations))(keys, sigmas, every)


def _one(
    key: PRNGKeyArray, sigma: Float[Array, ""], every: Int[Array, ""], settings: Settings, evaluations: int
) -> tuple[Float[Array, "E 2 n"], Float[Array, "E 2 n"]]:
    """Return Q and Q + g on the mesh at equally spaced times of one run."""
    n, B = 2**settings.depth + 1, settings.batch
    phi = tents(settings)

    def one_batch(carry: tuple[Array, Array, Array], j: Int[Array, ""]) -> tuple[tuple[Array, Array, Array], None]:
        theta, g, s = carry
        of_path, of_moves, of_starts = jax.random.split(jax.random.fold_in(batches_key, j), 3)
        # Drawn in short floats, which halves the time of everything: nothing here is a release.
        white = jax.random.normal(of_path, (2, n), jnp.float32).astype(float)
        fresh = sigma * mesh_path(white, settings.beta)  # [wang-hegde A1:13-17] variance sigma^2 d
        g = jnp.where(j % every == 0, fresh, g)  # [wang-hegde A1:5-7]
        moves = LONGEST_MOVE * jax.random.uniform(of_moves, (B,), jnp.float32).astype(float)
        starts = jax.random.uniform(of_starts, (1 + B // STEPS,))
        F = theta @ phi.T + g
        s, batch = walk(F, s, moves, starts, j * B)  # [wang-hegde A1:9] t = jB + b
        rewards = LARGEST_REWARD - jnp.abs(batch[2] - 0.5)
        return (theta + descent(F, batch, rewards, settings), g, s), None

    def until_seen(carry: tuple[Array, Array, Array], js: Int[Array, " b"]) -> tuple[tuple, tuple[Array, Array]]:
        carry, _ = jax.lax.scan(one_batch, carry, js)
        Q = carry[0] @ phi.T
        return carry, (Q, Q + carry[1])  # [wang-hegde A1:25] the second is released

    start_key, batches_key = jax.random.split(key)
    optimistic = jnp.full((2, settings.knots), LARGEST_REWARD / (1 - settings.discount))
    begin = (optimistic, jnp.zeros((2, n)), jax.random.uniform(start_key))
    return jax.lax.scan(until_seen, begin, jnp.arange(settings.batches).reshape(evaluations, -1))[1]
