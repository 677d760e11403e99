"""UCRL-VTR in plain NumPy: dense d x d matrices, one person after another, as the box is written down.

The library works in blocks and eigenbases; this has dense sums, inverses and determinants. It keeps its own exact sums
and is given only the noise, so an error would have to be made twice.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from scipy import stats


@dataclass
class ReferenceUCRLVTR:
    phi: np.ndarray
    rewards: np.ndarray
    horizon: int
    blocks: int = 1
    weight: float = 1.0
    bonus: float = 0.1
    lam: float = 1.0
    paper: bool = False
    stationary: bool = False
    failure: float = 0.01
    one_hot: bool = True
    V: np.ndarray = field(init=False)

    def __post_init__(self):
        H, d = self.horizon, self.phi.shape[-1]
        self.gram, self.u = np.zeros((H - 1, d, d)), np.zeros((H - 1, d))
        self.v = [sum(self._r(i).max() for i in range(h, H)) for h in range(H)] + [0.0]

    def _r(self, h):
        return self.rewards[min(h, len(self.rewards) - 1)]

    def _phi_V(self, V, s, a):
        total = np.zeros(self.phi.shape[-1])
        for x in range(len(V)):
            total += self.phi[s, a, x] * V[x]
        return total

    def absorb(self, states, actions, next_states):
        """One person's exact terms, on the plan they were shown."""
        for h in range(self.horizon - 1):
            V = self.V[h + 1]
            x = self._phi_V(V, states[h], actions[h])
            self.gram[h] += np.outer(x, x)
            self.u[h] += x * V[next_states[h]]

    def plan(self, W, xi, std, k):
        """The policy from the exact sums and noise `W` `[H-1, d, d]` and `xi` `[H-1, d]`, each entry of scale std."""
        (S, A, _, d), H = self.phi.shape, self.horizon
        Lambda, u = self.gram + W, self.u + xi
        if self.stationary:
            Lambda, u, std = Lambda.sum(0, keepdims=True), u.sum(0, keepdims=True), std * math.sqrt(H - 1)
        lam = self.lam * self.v[0] ** 2
        Gamma, noise = self._bounds(std)
        V, policy = np.zeros((H + 1, S)), np.zeros((H, S, A))
        for h in reversed(range(H)):
            g = min(h, len(Lambda) - 1)
            Sigma = Lambda[g] + (lam + 2 * Gamma) * np.eye(d)
            assert np.linalg.eigvalsh(Sigma).min() >= lam * (1 - 1e-9)
            inverse = np.linalg.inv(Sigma)
            theta = inverse @ u[g]
            size = math.sqrt(S * A if self.one_hot else d)
            sampling_error = 2 * math.log(max(k, 2)) + np.linalg.slogdet(Sigma / lam)[1]
            bias = size * math.sqrt(lam + 3 * Gamma)
            beta = bias + self.v[h + 1] * math.sqrt(sampling_error) + noise / math.sqrt(lam + Gamma)
            Q = np.zeros((S, A))
            for s in range(S):
                for a in range(A):
                    x = self._phi_V(V[h + 1], s, a)
                    optimistic = self._r(h)[s, a] + theta @ x + self.bonus * beta * math.sqrt(x @ inverse @ x)
                    Q[s, a] = min(self.v[h], optimistic)
                V[h, s] = min(max(Q[s].max(), 0.0), self.v[h])
                best = Q[s] >= Q[s].max() - 1e-9
                policy[h, s] = best / best.sum()
        self.V = V[:H]
        return policy

    def _bounds(self, std):
        d, H = self.phi.shape[-1], self.horizon
        if self.paper:
            Gamma = std * (2 * math.sqrt(d) + 2 * math.log(6 * H / self.failure))
            return Gamma, std * math.sqrt(d * math.log(12 * d * H / self.failure))
        m = d // self.blocks
        each, scale = self.failure / (2 * self.blocks), std * math.sqrt(2) / self.weight
        by_comparison = math.sqrt(2 * m) + stats.norm.isf(each / 2)
        by_norm = math.sqrt(stats.chi2.isf(each, m * (m + 1) // 2))
        return scale * min(by_comparison, by_norm), std * math.sqrt(stats.chi2.isf(self.failure / 2, d))


def dense(flat, blocks, m, weight):
    """The symmetric matrices and vectors that a flat message `[T, B, n]` stands for, entry by entry."""
    T = flat.shape[0]
    W, xi = np.zeros((T, blocks * m, blocks * m)), np.zeros((T, blocks * m))
    for t in range(T):
        for b in range(blocks):
            entries = iter(flat[t, b])
            for i in range(m):
                for j in range(i, m):
                    value = next(entries) / (weight if j > i else 1.0)
                    W[t, b * m + i, b * m + j] = W[t, b * m + j, b * m + i] = value
            for i in range(m):
                xi[t, b * m + i] = next(entries)
    return W, xi
