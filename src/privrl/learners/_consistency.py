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

import jax.numpy as jnp
from jaxtyping import Array, Float


def consistent_counts(
    transitions: Float[Array, "*rows S"], visits: Float[Array, "*rows"], half_width: Float[Array, ""] | float
) -> Float[Array, "*rows S"]:
    """Non-negative counts nearest to `transitions` in the largest error, with sums within `half_width` of `visits`."""
    x = jnp.maximum(transitions, 0.0)
    n = jnp.maximum(visits, 0.0)
    S = x.shape[-1]
    total = x.sum(axis=-1)
    most, least = n + half_width, n - half_width
    lowered = lowered_to(x, most)
    raised = x + jnp.maximum(least - total, 0.0)[..., None] / S
    return jnp.where((total > most)[..., None], lowered, raised)


def lowered_to(x: Float[Array, "*rows S"], total: Float[Array, "*rows"]) -> Float[Array, "*rows S"]:
    """max(x - t, 0) with t such that each row adds up to `total`: the nearest point of a scaled simplex."""
    ordered = -jnp.sort(-x, axis=-1)
    ranks = jnp.broadcast_to(jnp.arange(1.0, x.shape[-1] + 1), x.shape)
    excess = (jnp.cumsum(ordered, axis=-1) - total[..., None]) / ranks
    kept = (ordered > excess).sum(axis=-1, keepdims=True)  # the entries that stay positive
    t = jnp.take_along_axis(excess, jnp.maximum(kept, 1) - 1, axis=-1)
    return jnp.maximum(x - t, 0.0)
