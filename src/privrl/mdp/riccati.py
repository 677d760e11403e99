"""Known linear systems with quadratic costs: the best gains, and the exact cost of any gains.

One episode is x_{h+1} = A x_h + B u_h + w_h with cost sum_h x_h^T Q x_h + u_h^T R u_h over H steps (the state after the
last step costs nothing). A linear policy plays u_h = K_h x_h + v_h, where v_h is its exploration. Everything is
differentiable and works inside `jit` and `vmap`.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


@eqx.filter_jit
def riccati(
    A: Float[Array, "n n"], B: Float[Array, "n d"], Q: Float[Array, "n n"], R: Float[Array, "d d"], horizon: int
) -> tuple[Float[Array, "H d n"], Float[Array, "steps n n"]]:
    """The best gains K_1, ..., K_H and the costs to go P_1, ..., P_{H+1} (the last is 0) of a known system.

    K_h = -(R + B^T P_{h+1} B)^{-1} B^T P_{h+1} A and P_h = Q + A^T P_{h+1} A + A^T P_{h+1} B K_h. The paper prints its
    equation (3) with P_h where P_{h+1} belongs.
    """

    def step(P: Float[Array, "n n"], _: None) -> tuple[Array, tuple[Array, Array]]:
        BP = B.T @ P
        K = -jnp.linalg.solve(R + BP @ B, BP @ A)  # [chowdhury-zhou-shroff eq. 3] with P_{h+1}
        P = Q + A.T @ P @ A + (BP @ A).T @ K  # [chowdhury-zhou-shroff eq. 4]
        P = (P + P.T) / 2
        return P, (K, P)

    last = jnp.zeros_like(Q)
    _, (gains, costs) = jax.lax.scan(step, last, None, length=horizon, reverse=True)
    return gains, jnp.concatenate([costs, last[None]])


@eqx.filter_jit
def optimal_cost(
    A: Float[Array, "n n"],
    B: Float[Array, "n d"],
    Q: Float[Array, "n n"],
    R: Float[Array, "d d"],
    first_moment: Float[Array, "n n"],
    noise: Float[Array, "n n"],
    horizon: int,
) -> Float[Array, ""]:
    """The smallest expected cost: tr(P_1 X_1) + sum_h tr(P_{h+1} W).

    Arguments:
        first_moment: X_1 = E x_1 x_1^T.
        noise: W, the covariance of the noise.
    """
    _, P = riccati(A, B, Q, R, horizon)
    return (P[0] * first_moment).sum() + (P[1:].sum(axis=0) * noise).sum()  # [chowdhury-zhou-shroff eq. 5]


@eqx.filter_jit
def linear_cost(
    A: Float[Array, "n n"],
    B: Float[Array, "n d"],
    Q: Float[Array, "n n"],
    R: Float[Array, "d d"],
    gains: Float[Array, "H d n"],
    first_moment: Float[Array, "n n"],
    noise: Float[Array, "n n"],
    exploration: Float[Array, "d d"],
) -> Float[Array, ""]:
    """The exact expected cost of linear gains u_h = K_h x_h + v_h, by the Lyapunov recursion of X_h = E x_h x_h^T.

    v_h and w_h are independent with mean zero.

    Arguments:
        gains: K_h for every step.
        first_moment: X_1 = E x_1 x_1^T.
        noise: W, the covariance of w_h.
        exploration: V, the covariance of v_h.
    """

    def step(X: Float[Array, "n n"], K: Float[Array, "d n"]) -> tuple[Array, Array]:
        closed = A + B @ K
        return closed @ X @ closed.T + B @ exploration @ B.T + noise, X

    X = jax.lax.scan(step, first_moment, gains)[1]
    paid = jax.vmap(lambda K: Q + K.T @ R @ K)(gains)
    return (paid * X).sum() + gains.shape[0] * (R * exploration).sum()


@eqx.filter_jit
def clip_norm(gains: Float[Array, "*steps d n"], bound: float | Float[Array, ""]) -> Float[Array, "*steps d n"]:
    """The nearest gains (in Frobenius norm) of spectral norm at most `bound`: larger singular values are cut."""
    U, s, Vt = jnp.linalg.svd(gains, full_matrices=False)
    return (U * jnp.minimum(s, bound)[..., None, :]) @ Vt
