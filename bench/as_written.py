"""The published pseudo-code as plain NumPy: every sum is a loop over people, every bound variable a loop of its own.

Nothing is kept from one episode to the next but the people themselves, matrices are inverted where the paper writes an
inverse, and there is no noise. This is what a reader with the paper open would type first; `online.careful` is what a
careful person makes of it.
"""

import math
from typing import NamedTuple

import numpy as np

Table = np.ndarray
_TIE = 1e-9  # the best actions share the policy, as in privrl


class People(NamedTuple):
    """Whole episodes, one line each: `[n, H]`."""

    states: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    next_states: np.ndarray


def greedy(Q: Table) -> Table:
    """The policy of action values `[..., A]`, ties shared."""
    best = Q.max(axis=-1, keepdims=True) - _TIE <= Q
    return best / best.sum(axis=-1, keepdims=True)


def lsvi_ucb(people: People, phi: Table, r: Table, bonus: float, ridge: float, *, tabulated: bool = False) -> Table:
    """One plan of LSVI-UCB from everybody so far: Q `[H, S, A]`, lines 5 to 18 of [sahu A1] with all weights 1.

    Q_h is a function of (s, a), as in the paper, whose states may be infinitely many: V_{h+1}(s') of line 6 is a
    maximum over actions in each term of the sum. With `tabulated`, Q and V are worked out once for every (s, a)
    instead, which needs a finite world. Values are cut to [0, H - h], where the paper has H.
    """
    (S, A, d), (n, H) = phi.shape, people.states.shape
    inverse: list[np.ndarray] = [np.eye(d)] * H
    w, table = np.zeros((H, d)), np.zeros((H + 1, S))

    def Q(h: int, s: int, a: int) -> float:  # [sahu A1:11]
        x = phi[s, a]
        new = r[min(h, len(r) - 1), s, a] + w[h] @ x + bonus * math.sqrt(x @ inverse[h] @ x)
        return max(min(new, H - h), 0.0)

    def V(h: int, s: int) -> float:  # [sahu A1:18]
        if tabulated or h == H:
            return table[h, s]
        return max(Q(h, s, a) for a in range(A))

    values = np.zeros((H, S, A))
    for h in reversed(range(H)):  # [sahu A1:5]
        Lambda = ridge * np.eye(d)
        for i in range(n):  # [sahu A1:26]
            x = phi[people.states[i, h], people.actions[i, h]]
            Lambda += np.outer(x, x)
        inverse[h] = np.linalg.inv(Lambda)
        b = np.zeros(d)
        for i in range(n):  # [sahu A1:6]
            b += phi[people.states[i, h], people.actions[i, h]] * V(h + 1, people.next_states[i, h])
        w[h] = inverse[h] @ b
        for s in range(S):
            for a in range(A):
                values[h, s, a] = Q(h, s, a)
            table[h, s] = values[h, s].max()
    return values


def vapvi(people: People, phi: Table, bonus: float, ridge: float) -> Table:
    """VAPVI [qiao-wang A2]: the policy `[H, S, A]`. D and D' are both everybody and D/K = 0, as in its experiment."""
    (S, A, d), (n, H) = phi.shape, people.states.shape
    V, pi = np.zeros(S), np.zeros((H, S, A))
    for h in reversed(range(H)):  # [qiao-wang A2:3]
        s, a, reward, after = (x[:, h] for x in people)
        Sigma = ridge * np.eye(d)
        for i in range(n):  # [qiao-wang A2:4]
            Sigma += np.outer(phi[s[i], a[i]], phi[s[i], a[i]])
        squares, values = np.zeros(d), np.zeros(d)
        for i in range(n):
            squares += phi[s[i], a[i]] * V[after[i]] ** 2
        for i in range(n):
            values += phi[s[i], a[i]] * V[after[i]]
        beta, theta = np.linalg.inv(Sigma) @ squares, np.linalg.inv(Sigma) @ values  # [qiao-wang A2:5-6]
        variance = np.clip(phi @ beta, 0, (H - h) ** 2) - np.clip(phi @ theta, 0, H - h) ** 2  # [qiao-wang A2:7]
        sigma2 = np.maximum(1.0, variance)  # [qiao-wang A2:8]
        Lambda = ridge * np.eye(d)
        for i in range(n):  # [qiao-wang A2:9]
            Lambda += np.outer(phi[s[i], a[i]], phi[s[i], a[i]]) / sigma2[s[i], a[i]]
        targets = np.zeros(d)
        for i in range(n):
            targets += phi[s[i], a[i]] * (reward[i] + V[after[i]]) / sigma2[s[i], a[i]]
        inverse = np.linalg.inv(Lambda)
        w = inverse @ targets  # [qiao-wang A2:10]
        Q = np.zeros((S, A))
        for x in range(S):
            for u in range(A):
                Gamma = bonus * math.sqrt(d) * math.sqrt(phi[x, u] @ inverse @ phi[x, u])  # [qiao-wang A2:11]
                Q[x, u] = max(min(phi[x, u] @ w - Gamma, H - h), 0.0)  # [qiao-wang A2:12-13]
        V, pi[h] = Q.max(axis=1), greedy(Q)  # [qiao-wang A2:14]
    return pi


def counts(people: People, num_states: int, num_actions: int) -> Table:
    """n(h, s, a, s'), one transition at a time."""
    n, H = people.states.shape
    table = np.zeros((H, num_states, num_actions, num_states))
    for i in range(n):
        for h in range(H):
            table[h, people.states[i, h], people.actions[i, h], people.next_states[i, h]] += 1
    return table


def apvi(people: People, r: Table, failure: float) -> Table:
    """APVI [qiao-wang A1] with its printed constants and E = 0 (no noise): the policy `[H, S, A]`."""
    (S, A), H = r.shape[1:], people.states.shape[1]
    transitions = counts(people, S, A)  # [qiao-wang A1:2]
    C1, iota = math.sqrt(2.0), math.log(H * S * A / failure)
    V, pi = np.zeros(S), np.zeros((H, S, A))
    for h in reversed(range(H)):  # [qiao-wang A1:3]
        Q = np.zeros((S, A))
        for s in range(S):
            for a in range(A):
                n = transitions[h, s, a].sum()
                if n == 0:  # a penalty of C H leaves nothing
                    continue
                P = transitions[h, s, a] / n
                variance = P @ V**2 - (P @ V) ** 2
                Gamma = C1 * math.sqrt(max(variance, 0.0) * iota / n)  # [qiao-wang A1:5]
                Q[s, a] = max(min(r[min(h, len(r) - 1), s, a] + P @ V - Gamma, H - h), 0.0)  # [qiao-wang A1:4,6-7]
        V, pi[h] = Q.max(axis=1), greedy(Q)  # [qiao-wang A1:8]
    return pi
