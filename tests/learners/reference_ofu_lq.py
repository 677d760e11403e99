"""OFULQ up to its confidence set in plain NumPy, loop by loop, and the gains of a given system."""

import math

import numpy as np
from scipy.stats import chi, norm


def moments(states, inputs, c, tau):
    """One person's clipped sum of [z; c x'][z; c x']^T."""
    total = 0.0
    for h in range(len(inputs)):
        v = np.concatenate([states[h], inputs[h], c * states[h + 1]])
        total = total + np.outer(v, v)
    return total * min(1.0, tau / np.trace(total))


def square_root_noise(white):
    """noise_t = sum_j c_{t-j} z_j, symmetric, with scale 1 on the diagonal of each z."""
    coefficients = [1.0]
    for j in range(1, len(white)):
        coefficients.append(coefficients[-1] * (2 * j - 1) / (2 * j))
    noise = [sum(coefficients[t - j] * (white[j] + white[j].T) / 2 for j in range(t + 1)) for t in range(len(white))]
    growth = [math.sqrt(sum(x**2 for x in coefficients[: t + 1])) for t in range(len(white))]
    return noise, growth


def confidence_set(value, scale, c, task, *, radius, ridge, noise_ridge, failure):
    """The estimate, V and the radius, from a noisy sum whose diagonal has noise of this scale."""
    n, d = task.state_dim, task.input_dim
    p = n + d
    free = p * (p + 1) / 2
    Lambda = scale * min(chi.isf(failure, free), math.sqrt(2 * p) + norm.isf(failure / 2))
    L = scale / (math.sqrt(2) * c) * chi.isf(failure, p * n)
    eta, lmin = ridge + noise_ridge * Lambda, ridge + (noise_ridge - 1) * Lambda
    v, E = np.linalg.eigh(value[:p, :p] + eta * np.eye(p))
    v = np.maximum(v, lmin)
    V = E @ np.diag(v) @ E.T
    estimate = np.linalg.solve(V, value[:p, p:] / c)
    beta = float(task.noise_radius) * math.sqrt(2 * math.log(2 / failure) + n * np.log(v / lmin).sum())
    beta += float(task.parameter_radius) * math.sqrt(eta + Lambda) + L / math.sqrt(lmin)
    return estimate, V, radius * beta


def within_ball(estimate, V, size):
    """The nearest point of Frobenius norm at most `size` in the norm of V, by bisection on the multiplier."""
    low, high = 0.0, 1e12
    if np.linalg.norm(estimate) <= size:
        return estimate
    for _ in range(200):
        middle = (low + high) / 2
        point = np.linalg.solve(V + middle * np.eye(len(V)), V @ estimate)
        low, high = (middle, high) if np.linalg.norm(point) > size else (low, middle)
    return np.linalg.solve(V + high * np.eye(len(V)), V @ estimate)


def gains(Theta, task, bound):
    """The best gains of a system, cut to spectral norm `bound`."""
    n = task.state_dim
    A, B = Theta[:n].T, Theta[n:].T
    Q, R = np.asarray(task.state_cost), np.asarray(task.input_cost)
    P, found = np.zeros((n, n)), []
    for _ in range(task.horizon):
        K = -np.linalg.inv(R + B.T @ P @ B) @ B.T @ P @ A
        P = Q + A.T @ P @ A + A.T @ P @ B @ K
        U, s, Vt = np.linalg.svd(K, full_matrices=False)
        found.append(U @ np.diag(np.minimum(s, bound)) @ Vt)
    return np.array(found[::-1])
