"""The optimistic step of linear control: the cheapest system that the data allow.

    minimise J*(Theta)   over   |Theta - Theta^|_V <= beta  and  |Theta|_F <= S       [chowdhury-zhou-shroff (9)]

J* is not convex: it does not change when inputs change sign, J*(A, B) = J*(A, -B), and is smallest wherever A = 0.
Projected gradient descent through the Riccati recursion therefore starts from several points, the estimate with
flipped signs of B among them. Where Theta = 0 is in the set it is a minimiser, and nothing is searched.

Both sets are diagonal in the eigenvectors of V. Steps and projections use the metric G = V/beta^2 + I/S^2, in which
the intersection is neither flat nor long: it lies between balls of radius of order 1. The projection of Y has Theta =
(G + a V/beta^2 + b I/S^2)^{-1} (G Y + a V/beta^2 C) with multipliers a, b >= 0, found in turn by Newton's method;
what is left of the error is removed by moving towards the centre C, which is in both sets.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

_NEWTON = 6
_ROUNDS = 4
_SMALLEST_STEP = 1e-8


class ConfidenceSet(eqx.Module):
    """{Theta: |Theta - centre|_V <= radius, |Theta|_F <= size}, in the eigenvectors of V.

    Arrays of parameters are `[p, n]`; `turned` ones are basis^T Theta. The centre is in the set.
    """

    basis: Float[Array, "p p"]
    curvature: Float[Array, " p"]
    centre: Float[Array, "p n"]
    radius: Float[Array, ""]
    size: Float[Array, ""]

    @classmethod
    def around(
        cls,
        estimate: Float[Array, "p n"],
        V: Float[Array, "p p"],
        radius: Float[Array, ""],
        size: Float[Array, ""],
    ) -> "ConfidenceSet":
        """The set around an estimate, which is first projected on the ball of `size` in the norm of V.

        Projections on convex sets shrink distances, so whatever was within `radius` of the estimate, in that norm,
        and in the ball, is within `radius` of the projection: no parameter is lost, and the set is never empty.
        """
        curvature, basis = jnp.linalg.eigh(V)
        turned = basis.T @ estimate
        excess = _multiplier((turned * curvature[:, None]) / size, curvature, jnp.ones_like(curvature))
        centre = turned * (curvature / (curvature + excess))[:, None]
        return cls(basis, curvature, centre, radius, size)

    def parameters(self, turned: Float[Array, "p n"]) -> Float[Array, "p n"]:
        return self.basis @ turned

    def turned(self, parameters: Float[Array, "p n"]) -> Float[Array, "p n"]:
        return self.basis.T @ parameters

    @property
    def metric(self) -> Float[Array, " p"]:
        """The diagonal of G."""
        return self.curvature / self.radius**2 + 1.0 / self.size**2

    def contains(self, turned: Float[Array, "p n"]) -> Bool[Array, ""]:
        """Whether parameters are in the set, up to rounding."""
        return jnp.maximum(*self._lengths(turned)) <= 1.0 + 1e-9

    def project(self, turned: Float[Array, "p n"]) -> Float[Array, "p n"]:
        """The nearest parameters of the set in the metric G; always in the set."""
        e, b, g = self.curvature / self.radius**2, 1.0 / self.size**2, self.metric
        C = self.centre

        def solution(on_ellipsoid: Array, on_ball: Array) -> Array:
            top = g[:, None] * turned + (on_ellipsoid * e)[:, None] * C
            return top / (g + on_ellipsoid * e + on_ball * b)[:, None]

        def in_turn(_: int | Int[Array, ""], multipliers: tuple[Array, Array]) -> tuple[Array, Array]:
            on_ball = multipliers[1]
            top = g[:, None] * (turned - C) - on_ball * b * C
            on_ellipsoid = _multiplier(jnp.sqrt(e)[:, None] * top, g + on_ball * b, e)
            top = g[:, None] * turned + (on_ellipsoid * e)[:, None] * C
            bottom = g + on_ellipsoid * e
            return on_ellipsoid, _multiplier(jnp.sqrt(b) * top, bottom, jnp.broadcast_to(b, bottom.shape))

        nearest = solution(*jax.lax.fori_loop(0, _ROUNDS, in_turn, (jnp.zeros(()), jnp.zeros(()))))
        return self._towards_centre(nearest)

    def _lengths(self, turned: Float[Array, "p n"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        off = (self.curvature[:, None] * (turned - self.centre) ** 2).sum() / self.radius**2
        return jnp.sqrt(off), jnp.sqrt((turned**2).sum()) / self.size

    def _towards_centre(self, turned: Float[Array, "p n"]) -> Float[Array, "p n"]:
        """The point nearest to `turned` on the way to the centre that is in both sets."""
        off, _ = self._lengths(turned)
        D = turned - self.centre
        # |C + t D| = S: the positive root, C being inside
        a, half, c = (D**2).sum(), (D * self.centre).sum(), (self.centre**2).sum() - self.size**2
        root = jnp.sqrt(jnp.maximum(half**2 - a * jnp.minimum(c, 0.0), 0.0))
        reach = jnp.maximum(root - half, 0.0) / jnp.where(a > 0, a, 1.0)
        reach = jnp.where(a > 0, reach, 1.0)
        return self.centre + jnp.minimum(jnp.minimum(1.0, 1.0 / jnp.maximum(off, 1.0)), reach) * D


def _multiplier(top: Float[Array, "p n"], bottom: Float[Array, " p"], slope: Float[Array, " p"]) -> Float[Array, ""]:
    """The smallest m >= 0 with sum_i |top_i|^2/(bottom_i + m slope_i)^2 <= 1.

    Newton's method on one over the root of that sum, which is concave in m, approaches the answer from below. In one
    dimension (or where bottom and slope are proportional) it is linear, and one step is exact.
    """
    squares = (top**2).sum(axis=1)

    def step(_: int | Int[Array, ""], m: Float[Array, ""]) -> Float[Array, ""]:
        below = bottom + m * slope
        h = (squares / below**2).sum()
        dh = -2.0 * (squares * slope / below**3).sum()
        # phi = h^{-1/2} - 1, phi' = -h^{-3/2} dh / 2
        move = -(h**-0.5 - 1.0) / (-0.5 * h**-1.5 * dh)
        return jnp.where(h > 1.0, m + move, m)

    return jax.lax.fori_loop(0, _NEWTON, step, jnp.zeros(()))


def starting_points(within: ConfidenceSet, state_dim: int) -> Float[Array, "starts p n"]:
    """Where the search begins, as turned parameters that need not be in the set.

    First the estimate, 0, the estimate without A, with B flipped, both, and without B; for several inputs also each
    flipped alone. Where A and B were seen together the set is long and tilted, and these may all project to one end of
    it, so both ends of each of its axes follow. At B = 0 the slope in B is 0 whatever A is, so an input that was never
    tried is a saddle: the last two points add plus and minus a fixed full matrix to B.
    """
    estimate = within.parameters(within.centre)
    A, B = estimate[:state_dim], estimate[state_dim:]
    p, n = estimate.shape
    d = p - n
    pairs = [(1.0, 1.0), (0.0, 0.0), (0.0, 1.0), (1.0, -1.0), (0.0, -1.0), (1.0, 0.0)]
    points = [jnp.concatenate([a * A, b * B]) for a, b in pairs]
    if d > 1:
        points += [jnp.concatenate([A, jnp.where(jnp.arange(d)[:, None] == i, -B, B)]) for i in range(d)]
    pattern = np.cos(np.arange(d * n)).reshape(d, n)
    full = within.size * pattern / np.linalg.norm(pattern)
    points += [jnp.concatenate([A, B + full]), jnp.concatenate([A, B - full])]
    lengths = jnp.linalg.norm(within.centre, axis=1, keepdims=True)
    rows = jnp.where(lengths > 0, within.centre / jnp.where(lengths > 0, lengths, 1.0), n**-0.5)
    axes = jnp.eye(p)[:, :, None] * (2.0 / jnp.sqrt(within.metric)[:, None] * rows)[:, None, :]
    ends = [within.centre[None] + axes, within.centre[None] - axes]
    return jnp.concatenate([jax.vmap(within.turned)(jnp.stack(points)), *ends])


class _Search(eqx.Module):
    point: Float[Array, "starts p n"]
    cost: Float[Array, " starts"]
    slope: Float[Array, "starts p n"]
    step: Float[Array, " starts"]
    taken: Int[Array, ""]


def most_optimistic(
    cost: Callable[[Float[Array, "p n"]], Float[Array, ""]],
    within: ConfidenceSet,
    state_dim: int,
    *,
    steps: int = 150,
) -> Float[Array, "p n"]:
    """The parameters of least `cost` in a confidence set, as far as projected gradient descent finds them.

    Arguments:
        cost: J*, differentiable, positive and least at 0.
        within: the confidence set.
        state_dim: n; the first n rows of the parameters are A^T.
        steps: the most gradient steps. A step that does not help is shortened, one that does is followed by a longer
            one, and the search ends when every start's steps have become tiny.
    """
    value_and_slope = jax.vmap(jax.value_and_grad(lambda turned: cost(within.parameters(turned))))
    project = jax.vmap(within.project)
    points = starting_points(within, state_dim)
    g = within.metric[None, :, None]
    found = within.contains(jnp.zeros_like(within.centre))

    def unfinished(search: _Search) -> Bool[Array, ""]:
        return ~found & (search.taken < steps) & (search.step > _SMALLEST_STEP).any()

    def improve(search: _Search) -> _Search:
        length = jnp.sqrt((search.slope**2 / g).sum(axis=(1, 2), keepdims=True))
        direction = search.slope / g / jnp.where(length > 0, length, 1.0)
        point = project(search.point - search.step[:, None, None] * direction)
        value, slope = value_and_slope(point)
        better = value < search.cost
        return _Search(
            jnp.where(better[:, None, None], point, search.point),
            jnp.where(better, value, search.cost),
            jnp.where(better[:, None, None], slope, search.slope),
            search.step * jnp.where(better, 1.6, 0.3),
            search.taken + 1,
        )

    # At cost infinity and slope 0 the first step projects the starting points and takes them as they are.
    nothing = jnp.full(len(points), jnp.inf)
    begin = _Search(points, nothing, jnp.zeros_like(points), jnp.full(len(points), 0.3), jnp.zeros((), int))
    end = jax.lax.while_loop(unfinished, improve, begin)
    # Both signs of B may be as good, so the first of equals is taken: rounding must not decide.
    best = end.point[jnp.argmax(end.cost <= end.cost.min() * (1.0 + 1e-9))]
    return jnp.where(found, 0.0, within.parameters(best))
