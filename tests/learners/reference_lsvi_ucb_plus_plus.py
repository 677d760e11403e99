"""LSVI-UCB++ in plain NumPy, as the box says: loops over users, steps and pairs, everything recomputed from history."""

import math

import numpy as np


def symmetric(packed, d):
    """A symmetric matrix from its upper triangle, whose off-diagonal entries come times sqrt 2."""
    W = np.zeros((d, d))
    n = 0
    for i in range(d):
        for j in range(i, d):
            W[i, j] = W[j, i] = packed[n] / (1.0 if i == j else math.sqrt(2.0))
            n += 1
    return W


class Reference:
    """Plans from users (s, a, r, s')[h], each with the weight table that was published to them.

    `noise` holds what is added to the released numbers of one plan: `gram` `[H, m]` and `regressions` `[H, n, d]`.
    """

    def __init__(self, learner, spectral_bound, by_determinants):
        self.phi = np.asarray(learner.features.table)
        self.S, self.A, self.d = self.phi.shape
        self.H = learner.horizon
        self.learner, self.by_determinants = learner, by_determinants
        self.rewards = None if learner.rewards is None else np.asarray(learner.rewards)
        self.weighted = learner.rows == 3  # with pessimistic values, and a minimum with older ones
        self.unit = self.H if self.weighted else 1.0
        self.spectral_bound = spectral_bound  # of the noise of one Gram matrix
        self.Q_hi = np.array([np.full((self.S, self.A), self.H - h, float) for h in range(self.H)])
        self.Q_lo = np.zeros((self.H, self.S, self.A))
        self.determinants = None

    def plan(self, history, noise):
        H, d, phi, L, S, A = self.H, self.d, self.phi, self.learner, self.S, self.A
        lam = float(L.ridge) + float(L.noise_ridge) * self.spectral_bound / self.unit
        Lambda = []
        for h in range(H):
            gram = symmetric(noise["gram"][h], d)
            for user, weights in history:
                s, a, _, _ = user[h]
                gram = gram + weights[h, s, a] * np.outer(phi[s, a], phi[s, a])
            Lambda.append(gram / self.unit + lam * np.eye(d))
        determinants = [np.linalg.det(matrix) for matrix in Lambda]
        before = [lam**d] * H if self.determinants is None else self.determinants
        doubled = any(new >= 2 * old for new, old in zip(determinants, before, strict=True))
        switch = (doubled or not self.by_determinants) and len(history) > 0
        if switch:
            self.determinants = determinants
        V_hi, V_lo = np.zeros(S), np.zeros(S)
        weights = np.ones((H, S, A))
        for h in reversed(range(H)):
            if L.centred:
                middle, half = (V_hi.max() + V_hi.min()) / 2, (V_hi.max() - V_hi.min()) / 2
                middle_lo, half_lo = (V_lo.max() + V_lo.min()) / 2, (V_lo.max() - V_lo.min()) / 2
            else:
                middle, half, middle_lo, half_lo = 0.0, float(H), 0.0, float(H)
            b = noise["regressions"][h].copy()
            b[0] *= half
            if self.weighted:
                b[1] *= half_lo
                b[2] *= half**2 / 2 if L.centred else half**2
            for user, table in history:
                s, a, r, after = user[h]
                x = table[h, s, a] * phi[s, a]
                b[0] += x * (V_hi[after] - middle)
                if self.weighted:
                    b[1] += x * (V_lo[after] - middle_lo)
                    b[2] += x * ((V_hi[after] - middle) ** 2 - (half**2 / 2 if L.centred else 0.0))
                if self.rewards is None:
                    b[-1] += x * (2 * r - 1 if L.centred else r)
            w = [np.linalg.solve(Lambda[h], row / self.unit) for row in b]
            Q_hi, Q_lo = self.Q_hi[h].copy(), self.Q_lo[h].copy()
            for s in range(S):
                for a in range(A):
                    x = phi[s, a]
                    norm = math.sqrt(x @ np.linalg.solve(Lambda[h], x))
                    if self.rewards is None:
                        r = min(max((x @ w[-1] + 1) / 2 if L.centred else x @ w[-1], 0.0), 1.0)
                    else:
                        r = self.rewards[min(h, len(self.rewards) - 1), s, a]
                    if switch:
                        new = min(r + middle + x @ w[0] + float(L.bonus) * norm, H - h)
                        Q_hi[s, a] = min(new, Q_hi[s, a]) if self.weighted else max(new, 0.0)
                    if not self.weighted:
                        continue
                    if switch:
                        new = r + middle_lo + x @ w[1] - float(L.pessimistic_bonus) * norm
                        Q_lo[s, a] = max(new, Q_lo[s, a], 0.0)
                    square = np.clip(x @ w[2] + (half**2 / 2 if L.centred else 0.0), 0.0, half**2)
                    mean = np.clip(x @ w[0], -half if L.centred else 0.0, half)
                    gap = middle + x @ w[0] - middle_lo - x @ w[1]
                    E = min(float(L.squares_bonus) * norm, H**2) + min(2 * H * float(L.bonus) * norm, H**2)
                    scale = float(L.gap_scale)
                    D = min(scale * (gap + 2 * float(L.bonus) * norm), scale * H / 4)
                    sigma = math.sqrt(max(square - mean**2 + E + D + H, 0.0))
                    sigma_bar = max(sigma, math.sqrt(H), float(L.direction_scale) * math.sqrt(norm))
                    weights[h, s, a] = H / sigma_bar**2
            self.Q_hi[h], self.Q_lo[h] = Q_hi, Q_lo
            V_hi, V_lo = Q_hi.max(axis=1), Q_lo.max(axis=1)
        return self.Q_hi.copy(), self.Q_lo.copy(), weights, switch
