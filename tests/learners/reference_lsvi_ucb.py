"""LSVI-UCB in plain NumPy: loops over the whole history at every plan, as the algorithm is written down.

Where the library has closed forms (eigenbases, normal equations, a Newton projection) this has dense solves with other
matrices, stacked least squares and a sort, so that an error would have to be made twice.
"""

import math
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Block:
    """One release: running sums after `num_seen` people, the variances of their noise, and the policy before it."""

    moments: np.ndarray
    starts: np.ndarray
    variance: float
    start_variance: float
    num_seen: int
    policy: np.ndarray


@dataclass
class ReferenceLSVIUCB:
    phi: np.ndarray
    horizon: int
    rewards: np.ndarray | None = None
    arrival_rewards: np.ndarray | None = None
    terminal: tuple = ()
    bonus: float = 1.0
    history: list = field(default_factory=list)

    def plan(self, optimistic):
        """The policy `[H, S, A]` from everything released so far."""
        (S, A, _), H = self.phi.shape, self.horizon
        self.v = np.linalg.pinv(self.phi.reshape(S * A, -1)) @ np.ones(S * A)
        self.gram = [self._gram(h) for h in range(H)]
        released = self.history[-1].moments if self.history else np.zeros((H, S + 1, self.phi.shape[-1]))
        self.variance = self.history[-1].variance if self.history else 0.0
        bonus = self.bonus if optimistic else 0.0
        V, policy = np.zeros(S), np.zeros((H, S, A))
        for h in reversed(range(H)):
            M = released[h, :S].T.copy()
            M += np.outer(self.gram[h] @ self.v - M @ np.ones(S), np.ones(S)) / S
            if self.rewards is not None:
                r = self.rewards[min(h, len(self.rewards) - 1)]
            elif self.arrival_rewards is not None:
                r, V = np.zeros((S, A)), V + self.arrival_rewards
            else:
                w, D = self._regress(h, released[h, S], 1.0, 1.0)
                r = np.clip(0.5 + np.clip(self.phi @ w, -0.5, 0.5) + bonus * np.sqrt(self._luck(h, 1.0) + D), 0, 1)
            Q = r + self._optimistic(h, M, V, bonus)
            best = Q.max(axis=1, keepdims=True) - 1e-9 <= Q
            policy[h] = best / best.sum(axis=1, keepdims=True)
            V = Q.max(axis=1)
            V[list(self.terminal)] = 0.0
        return policy

    def _optimistic(self, h, M, V, bonus):
        R, m = V.max() - V.min(), V.mean()
        if R == 0:
            return np.full(self.phi.shape[:2], m)
        w, noise_variance = self._regress(h, M @ (V - m), R, np.sum((V - m) ** 2))
        PV = np.clip(m + self.phi @ w, V.min(), V.max())
        F = (V - m) ** 2
        w, _ = self._regress(h, M @ (F - F.mean()), F.max() - F.min(), np.sum((F - F.mean()) ** 2))
        PF = np.clip(F.mean() + self.phi @ w, F.min(), F.max())
        r = np.clip(12 * (PF - (PV - m) ** 2) / R**2, 0.02, 1.0)
        return np.minimum(PV + bonus * np.sqrt(r * self._luck(h, R) + noise_variance), V.max())

    def _regress(self, h, targets, width, size):
        """w and the noise_variance x^T (tau^2 s2 D^-1) x, by dense solves."""
        S, d = self.phi.shape[0], self.phi.shape[-1]
        G, eye = self.gram[h], np.eye(d)
        q = width**2 / 12
        tau2 = q / np.mean(np.sum(self.phi**2, axis=-1))
        s2 = self.variance * (size + q / (1 / (self.v @ self.v) + 1 / S))
        if q == 0:
            return np.zeros(d), np.zeros(self.phi.shape[:2])
        if s2 == 0:  # one power of G cancels
            return tau2 * np.linalg.solve(tau2 * G + q * eye, targets), np.zeros(self.phi.shape[:2])
        D = tau2 * G @ G + q * G + s2 * eye
        noise_variance = np.einsum("sai,ij,saj->sa", self.phi, np.linalg.inv(D), self.phi) * tau2 * s2
        return tau2 * np.linalg.solve(D, G @ targets), noise_variance

    def _luck(self, h, width):
        inverse = np.linalg.inv(self.gram[h] + np.eye(self.phi.shape[-1]) / 12)
        return width**2 / 12 * np.einsum("sai,ij,saj->sa", self.phi, inverse, self.phi)

    def _gram(self, h):
        """The Gram matrix of step h, block by block from the beginning."""
        S, A, d = self.phi.shape
        G = np.zeros((d, d))
        for b in range(len(self.history)):
            n = self._states(b)[h]
            pairs = self._pairs(b, h, n)
            for s in range(S):
                for a in range(A):
                    if s not in self.terminal:
                        G += pairs[s, a] * np.outer(self.phi[s, a], self.phi[s, a])
        return G

    def _difference(self, b):
        """The moments and starts of block b alone, and its length."""
        S, block = self.phi.shape[0], self.history[b]
        if b == 0:
            return block.moments[:, :S], block.starts, block.num_seen
        last = self.history[b - 1]
        return (block.moments - last.moments)[:, :S], block.starts - last.starts, block.num_seen - last.num_seen

    def _states(self, b):
        S, block = self.phi.shape[0], self.history[b]
        dM, starts, length = self._difference(b)
        counts, gone = [], np.zeros(S)
        for h in range(self.horizon):
            mean, sampling_error = np.zeros((S, self.phi.shape[-1])), 0.0
            for s in range(S):
                if s not in self.terminal:
                    mean[s] = block.policy[h, s] @ self.phi[s]
                    sampling_error += block.policy[h, s] @ np.sum(self.phi[s] ** 2, axis=1) - mean[s] @ mean[s]
            arrivals = starts if h == 0 else dM[h - 1] @ self.v
            noise = block.start_variance if h == 0 else self.v @ self.v * block.variance
            if noise == 0:
                n = arrivals
            else:
                root = np.sqrt(noise / (S * block.variance + length * max(sampling_error / S, 0.0)))
                stacked = np.concatenate([np.eye(S), root * mean.T])
                seen = np.concatenate([arrivals, root * dM[h].sum(axis=0)])
                n = np.linalg.lstsq(stacked, seen, rcond=None)[0]
            n = onto_simplex(n + gone, length)
            gone = np.array([n[s] if s in self.terminal else 0.0 for s in range(S)])
            counts.append(n)
        return counts

    def _pairs(self, b, h, n):
        """n pi, updated by the departures with the multinomial covariance of all pairs written out."""
        (S, A, d), block = self.phi.shape, self.history[b]
        n = np.array([0.0 if s in self.terminal else n[s] for s in range(S)])
        pi, X = block.policy[h], self.phi.reshape(S * A, d)
        expected, C = (n[:, None] * pi).ravel(), np.zeros((S * A, S * A))
        for s in range(S):
            rows = slice(s * A, (s + 1) * A)
            C[rows, rows] = n[s] * (np.diag(pi[s]) - np.outer(pi[s], pi[s]))
        L = X.T @ C @ X
        floor = S * block.variance + 1e-4 * (1 + np.trace(L))
        surprise = self._difference(b)[0][h].sum(axis=0) - X.T @ expected
        pairs = expected + C @ X @ np.linalg.solve(L + floor * np.eye(d), surprise)
        pairs = np.maximum(pairs, 0.0).reshape(S, A)
        for s in range(S):
            pairs[s] = pairs[s] * n[s] / pairs[s].sum() if n[s] > 0 else 0.0
        return pairs


def is_optimistic(num_seen):
    """Whether the episode after `num_seen` others lies in the first tenth of its interval."""
    length, begin, i = 1, 0, 0
    while begin + length <= num_seen:
        begin, i = begin + length, i + 1
        length = math.ceil(1.3**i)
    return num_seen - begin < max(1, length // 10)


def onto_simplex(x, total):
    """The nearest point with entries >= 0 that add up to `total`, by sorting."""
    ordered = np.sort(x)[::-1]
    best = 0.0
    for k in range(1, len(x) + 1):
        t = (ordered[:k].sum() - total) / k
        if ordered[k - 1] > t or k == 1:
            best = t
    return np.maximum(x - best, 0.0)
