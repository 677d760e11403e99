"""The model-assisted gain: double reinforcement learning with two linear nuisances, one for values and one for visits.

From the sums of `statistics/model_gains.py`, as means over people: N = E sum rho x x^T, E = E sum rho x (x - x')^T,
R = E sum rho r x, and x0 = (1, E f(s0)). For a copy (advice, or practice with rho = 1) and H steps

    K = N^-1 (N - E),  q = N^-1 R                            next features, and rewards, as lines in x
    theta_H = 0,  theta_h = q + K theta_{h+1}                values V_h(s) = x.theta_h
    c_0 = x0,  c_{h+1} = K^T c_h,  a_h = N^-T c_h            visits at step h, as a share of practice's
    psi = x0.theta_0 + sum_k rho_k [ r_k abar.x_k + x_k^T P1 x'_k - x_k^T P0 x_k ]

with abar = sum_h a_h, P1 = sum_h a_h theta_{h+1}^T, P0 = sum_h a_h theta_h^T. psi is linear in the sums of a stay, and
its mean is right to first order if either nuisance is. Lines are brought into range at f = -1 and f = 1: a stay goes on
with a probability in [0, 1], its next feature is at most as large as that, rewards and values lie in [0, 1]. So f must
not lie well inside [-1, 1]: it is cut at one standard deviation over states (`standard_feature`).

All of this rests on a straight line in one feature, and on a recorded state that is complete: given the state and the
action, what happens next does not depend on the past. There is no guarantee, and the interval has an allowance,
.2 |value| + .005 of the range of returns.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from privrl.contracts.release import Release
from privrl.evaluation.confidence import Interval
from privrl.statistics.model_gains import ENTRIES, WEIGHTS

LEAST_STRENGTH = 1000.0
"""The model is refused where the number of people times mu, that of its own releases together, is smaller."""
RELATIVE, ABSOLUTE = 0.2, 0.005
"""The allowance of the model interval: a share of the value, and of the range of returns."""


def standard_feature(feature: Float[Array, " S"], terminal: tuple[int, ...]) -> Float[Array, " S"]:
    """f: centred at its mean over states that are not terminal, and cut at one standard deviation; 0 at the others."""
    live = np.ones(len(feature), bool)
    live[list(terminal)] = False
    x = np.asarray(feature, float)
    x = np.ldexp(x, -np.frexp(np.abs(x).max(initial=0.0))[1])  # exact, and no mean or square of it overflows
    mean, spread = (x[live].mean(), x[live].std()) if live.any() else (0.0, 0.0)
    return jnp.asarray(np.where(live & (spread > 0.0), np.clip((x - mean) / (spread or 1.0), -1.0, 1.0), 0.0))


def coefficients(
    nuisance: Release, people: int, horizon: int
) -> tuple[Float[np.ndarray, " 2"], Float[np.ndarray, "2 10"]] | None:
    """The coefficients of (1, f(s0)), advice minus practice, and of both copies' sums, in psi of advice minus that of
    practice; none where noise hides how the feature varies."""
    means = np.asarray(nuisance.value, float) / people
    noise = float(np.max(nuisance.noise.std)) / people / np.asarray(WEIGHTS)
    copies = means[:-1].reshape(2, ENTRIES) / np.asarray(WEIGHTS)
    x0 = np.array([1.0, np.clip(means[-1], -1.0, 1.0)])
    solved = [_solved(copy, noise, x0, horizon) for copy in copies]
    if solved[0] is None or solved[1] is None:
        return None
    (first, advised), (second, practised) = solved[0], solved[1]
    return first - second, np.stack([advised, practised])


def model_interval(mean: Release, square: Release, people: int, among: int = 1) -> Interval:
    """The model interval, as a share of the range of returns; `among` intervals share the error rate."""
    value = float(mean.value[0]) / people
    second, noise = float(square.value[0]) / people, float(np.max(square.noise.std)) / people
    variance = max(second - value**2, 0.0) + noise
    return Interval.of(value, variance, people, mean.noise, RELATIVE * abs(value) + ABSOLUTE, among=among)


def _solved(
    copy: Float[np.ndarray, " 10"], noise: Float[np.ndarray, " 10"], x0: Float[np.ndarray, " 2"], horizon: int
) -> tuple[Float[np.ndarray, " 2"], Float[np.ndarray, " 10"]] | None:
    """theta_0 and the coefficients of the sums (n, M, T, R) of one copy."""
    n, M, T, R = np.split(copy, [3, 5, 8])
    N = np.array([[n[0], n[1]], [n[1], n[2]]])
    E = np.array([[T[0], M[0] + T[1]], [T[1], M[1] + T[2]]])
    if np.linalg.eigvalsh(N)[0] <= 2.0 * noise[0]:
        return None
    K, q = np.linalg.solve(N, N - E), np.linalg.solve(N, R)
    alive = _line(K[:, 0], 0.0, 1.0)
    K = np.stack([alive, _line(K[:, 1], -_ENDS @ alive, _ENDS @ alive)], axis=1)
    q = _line(q, 0.0, 1.0)
    theta, c = np.zeros((horizon + 1, 2)), np.zeros((horizon, 2))
    for h in reversed(range(horizon)):
        theta[h] = _line(q + K @ theta[h + 1], 0.0, 1.0)
    c[0] = x0
    for h in range(1, horizon):
        c[h] = K.T @ c[h - 1]
    a = np.linalg.solve(N.T, c.T).T
    P1, P0 = a.T @ theta[1:], a.T @ theta[:-1]
    Q = P1 - P0
    on_visits = [Q[0, 0], Q[0, 1] + Q[1, 0], Q[1, 1]]
    on_endings = [-P1[0, 0], -P1[0, 1] - P1[1, 0], -P1[1, 1]]
    found = np.array([*on_visits, -P1[0, 1], -P1[1, 1], *on_endings, *a.sum(axis=0)])
    return (theta[0], found) if np.isfinite(found).all() and np.isfinite(theta[0]).all() else None


_ENDS = np.array([[1.0, -1.0], [1.0, 1.0]])  # x at f = -1 and at f = 1


def _line(
    line: Float[np.ndarray, " 2"], low: float | Float[np.ndarray, " 2"], high: float | Float[np.ndarray, " 2"]
) -> Float[np.ndarray, " 2"]:
    """The line in f whose values at f = -1 and f = 1 are those of this one, brought into range."""
    return np.linalg.solve(_ENDS, np.clip(_ENDS @ line, low, high))
