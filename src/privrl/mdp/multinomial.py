"""Exact binomial and multinomial draws whose cost does not depend on the number of trials.

`jax.random.binomial` is not used, because its rejection test evaluates the Stirling correction of log k! at min(k, 9),
so the logarithm of the acceptance ratio is off by up to .008 for counts above nine. `jax.random.multinomial` draws the
outcomes one after another. Here the correction is right, and a binary tree splits the outcomes: the number of
vectorised draws is log2 of their number.

A binomial (n, p) with p <= 1/2 (else the failures are drawn) comes from

- **inversion** of one uniform by summing the probabilities upwards, when n p <= 10;
- **transformed rejection** (Hörmann 1993, algorithm BTRS) otherwise.

Both are exact up to float64 rounding. Cells of probability zero never receive anything, and counts add up exactly:
they are integers held in float64, which represents them up to 2^53.
"""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Key, Real, UInt32

AnyKey = Key[Array, ""] | UInt32[Array, " words"]

# Beyond this many successes an n p <= 10 binomial has less than 2^-90 of its mass: no 52-bit uniform reaches it.
_LARGEST_INVERTED = 64
_UNROLL = 8

# log k! - [(k + 1/2) log(k + 1) - (k + 1) + log(2 pi)/2], where the asymptotic series is not yet accurate.
_STIRLING = tuple(
    math.lgamma(k + 1) - (k + 0.5) * math.log(k + 1) + (k + 1) - 0.5 * math.log(2 * math.pi) for k in range(16)
)


def _stirling_correction(k: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    x = 1.0 / (k + 1.0)
    series = x * (1 / 12 - x**2 * (1 / 360 - x**2 * (1 / 1260 - x**2 / 1680)))
    small = jnp.asarray(_STIRLING)[jnp.clip(k, 0, len(_STIRLING) - 1).astype(int)]
    return jnp.where(k < len(_STIRLING), small, series)


def _invert(u: Float[Array, "*shape"], n: Float[Array, "*shape"], p: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The number of successes k at which the distribution function passes u; needs n p <= 10."""
    odds = p / (1.0 - p)

    def unfinished(carry: tuple[Array, Array, Array, Array]) -> Array:
        k, _, left, mass = carry
        return jnp.any(left >= mass) & (k < _LARGEST_INVERTED)

    def step(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        k, found, left, mass = carry
        for _ in range(_UNROLL):
            more = left >= mass
            left = jnp.where(more, left - mass, -1.0)
            found = found + more
            mass = mass * (n - k) / (k + 1.0) * odds
            k = k + 1.0
        return k, found, left, mass

    start = (jnp.zeros(()), jnp.zeros_like(u), u, jnp.exp(n * jnp.log1p(-p)))
    _, found, _, _ = jax.lax.while_loop(unfinished, step, start)
    return jnp.minimum(found, n)  # rounding of the last probability must not invent a trial


def _propose(
    u: Float[Array, "*shape"], v: Float[Array, "*shape"], n: Float[Array, "*shape"], p: Float[Array, "*shape"]
) -> tuple[Float[Array, "*shape"], Bool[Array, "*shape"]]:
    """One round of transformed rejection with squeeze (BTRS): a number of successes, and whether it is accepted.

    Needs n p >= 10 and p <= 1/2.
    """
    deviation = jnp.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    odds = p / (1 - p)
    m = jnp.floor((n + 1) * p)  # the mode

    u = u - 0.5
    us = 0.5 - jnp.abs(u)
    k = jnp.floor((2 * a / us + b) * u + n * p + 0.5)
    inside = (k >= 0) & (k <= n)
    k = jnp.where(inside, k, m)
    quick = (us >= 0.07) & (v <= 0.92 - 4.2 / b)
    # log of the binomial probability of k over that of m
    log_ratio = (
        (m + 0.5) * jnp.log((m + 1) / (odds * (n - m + 1)))
        + (n + 1) * jnp.log((n - m + 1) / (n - k + 1))
        + (k + 0.5) * jnp.log(odds * (n - k + 1) / (k + 1))
        + _stirling_correction(m)
        + _stirling_correction(n - m)
        - _stirling_correction(k)
        - _stirling_correction(n - k)
    )
    alpha = (2.83 + 5.1 / b) * deviation
    slow = jnp.log(v * alpha / (a / us**2 + b)) <= log_ratio
    return k, inside & (quick | slow)


def binomial(key: AnyKey, trials: Real[Array, "*shape"], probability: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Numbers of successes, one per cell, as whole numbers in float64.

    Arguments:
        key: randomness, one key for the whole array.
        trials: whole numbers, 0 upwards; may be traced.
        probability: in [0, 1]; 0 and 1 give exactly 0 and `trials`.
    """
    shape = probability.shape
    n, probability = jnp.asarray(trials, float).ravel(), probability.ravel()
    flipped = probability > 0.5
    p = jnp.where(flipped, 1.0 - probability, probability)
    rare = n * p <= 10.0
    cells = n.size
    some = max(cells // 8, min(cells, 32))

    def round(carry: tuple[AnyKey, Array, Array]) -> tuple[AnyKey, Array, Array]:
        """Try a few unfinished cells, so that the work follows the cells that still need randomness."""
        key, value, done = carry
        key, draw_key = jr.split(key)
        u, v = jr.uniform(draw_key, (2, some))
        cell = jnp.flatnonzero(~done, size=some, fill_value=cells)
        invert = rare.at[cell].get(mode="fill", fill_value=True)
        # Cells for inversion keep this uniform for later; the rejection sees harmless parameters in their place.
        n_try = jnp.where(invert, 100.0, n.at[cell].get(mode="fill", fill_value=0.0))
        p_try = jnp.where(invert, 0.5, p.at[cell].get(mode="fill", fill_value=0.0))
        k, accepted = _propose(u, v, n_try, p_try)
        finished = jnp.where(invert | accepted, cell, cells)
        value = value.at[finished].set(jnp.where(invert, u, k), mode="drop")
        return key, value, done.at[finished].set(True, mode="drop")

    start = (key, jnp.zeros(cells), n * p == 0.0)
    _, value, _ = jax.lax.while_loop(lambda carry: ~jnp.all(carry[2]), round, start)
    few = _invert(jnp.where(rare, value, 0.0), jnp.where(rare, n, 0.0), p)
    successes = jnp.where(rare, few, value)
    return jnp.where(flipped, n - successes, successes).reshape(shape)


def multinomial(
    key: AnyKey, trials: Real[Array, "*batch"], probability: Float[Array, "*batch K"]
) -> Float[Array, "*batch K"]:
    """Distribute `trials` over the K outcomes of the last axis: exact, and adding up exactly.

    Level by level, each node of a binary tree over the outcomes splits its count between its two halves. All levels are
    padded to the width of the last, so that one compiled step serves all of them.
    """
    batch, K = probability.shape[:-1], probability.shape[-1]
    levels = max(math.ceil(math.log2(K)), 1)
    width = 2**levels
    mass = jnp.pad(probability, [(0, 0)] * len(batch) + [(0, width - K)])
    ratios = []
    for _ in range(levels):
        left, right = mass[..., 0::2], mass[..., 1::2]
        mass = left + right
        # Where nothing can arrive, nothing has to be split.
        ratio = left / jnp.where(mass > 0, mass, 1.0)
        ratios.append(jnp.pad(ratio, [(0, 0)] * len(batch) + [(0, width // 2 - ratio.shape[-1])]))

    def split(counts: Array, level: tuple[AnyKey, Array]) -> tuple[Array, None]:
        level_key, ratio = level
        parents = counts[..., : width // 2]  # the others are padding, and empty
        first = binomial(level_key, parents, ratio)
        return jnp.stack([first, parents - first], axis=-1).reshape(*batch, width), None

    root = jnp.zeros((*batch, width)).at[..., 0].set(jnp.asarray(trials, float))
    counts, _ = jax.lax.scan(split, root, (jr.split(key, levels), jnp.stack(ratios[::-1])))
    return counts[..., :K]
