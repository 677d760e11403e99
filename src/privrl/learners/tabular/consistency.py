"""The consistency step of APVI in closed form: noisy counts that add up [qiao-wang eq. (3)-(4)].

For one row of next-state counts x' >= 0 and a visit count n', find x >= 0 with |sum x - n'| <= E/2 that minimises
max |x - x'|. The paper solves a linear programme; the solution is

    sum x' > n' + E/2:  x = max(x' - t, 0) with t such that sum x = n' + E/2   (a projection onto a scaled simplex)
    sum x' < n' - E/2:  x = x' + t with t = (n' - E/2 - sum x')/S
    otherwise:          x = x'

*Proof.* Any feasible x has x >= max(x' - t, 0) for t = max|x - x'|, so sum max(x' - t, 0) <= n' + E/2 is necessary, and
it is sufficient because x = max(x' - t, 0) is itself within t of x'. The sum falls in t, so the smallest such t makes
it equal. With a deficit, sum x <= sum x' + S t must reach n' - E/2.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def consistent_counts(
    transitions: Float[Array, "*rows S"], visits: Float[Array, "*rows"], half_width: Float[Array, "*#rows"] | float
) -> Float[Array, "*rows S"]:
    """Non-negative counts nearest to `transitions` in the largest error, with sums within `half_width` of `visits`."""
    x = jnp.maximum(transitions, 0.0)
    n = jnp.maximum(visits, 0.0)
    S = x.shape[-1]
    total = x.sum(axis=-1)
    most, least = n + half_width, n - half_width
    raised = x + jnp.maximum(least - total, 0.0)[..., None] / S
    return jnp.where((total > most)[..., None], lowered_to(x, most), raised)


def lowered_to(x: Float[Array, "*rows S"], total: Float[Array, "*rows"]) -> Float[Array, "*rows S"]:
    """max(x - t, 0) with t such that each row adds up to `total` >= 0: the nearest point of a scaled simplex.

    Newton's method on sum max(x - t, 0) = total, which is convex and piecewise linear in t. Started where every entry
    counts it climbs to the root from below: each step solves for t with the entries that still counted, and those
    at or below t drop out for good. So it ends at the exact t, after a handful of steps for most rows and at most S,
    and unlike a sort it needs no second copy of x.
    """
    Carry = tuple[Bool[Array, "*rows S"], Float[Array, "*rows"], Bool[Array, ""]]

    def root(active: Bool[Array, "*rows S"]) -> Float[Array, "*rows"]:
        left = jnp.maximum(active.sum(axis=-1), 1)
        return (jnp.where(active, x, 0.0).sum(axis=-1) - total) / left

    def step(carry: Carry) -> Carry:
        active, t, _ = carry
        fewer = active & (x > t[..., None])
        changed = fewer.any(axis=-1) & (fewer != active).any(axis=-1)  # never all: `total` = 0 keeps the largest
        return jnp.where(changed[..., None], fewer, active), jnp.where(changed, root(fewer), t), changed.any()

    everything = jnp.ones_like(x, bool)
    _, t, _ = jax.lax.while_loop(lambda carry: carry[2], step, (everything, root(everything), jnp.asarray(True)))
    return jnp.maximum(x - t[..., None], 0.0)
