"""Group-sequential boundaries from the joint law of sampling and privacy noise over the looks.

Without an effect the estimate d_l of a look is normal, and its covariance over looks is known: outcomes of blocks are
independent, and the noise of running sums has the covariance of its continual mechanism. With X_aj the sum of outcomes
of arm a in block j, variance v n_aj, and N_aj the increment of the noise,

    d_l = sum_j p_lj (X_1j + N_1j) - q_lj (X_0j + N_0j),    p_lj = (n_k/n)/n_1k,  q_lj = (n_k/n)/n_0k  for j in phase k.

2^20 paths of z_l = d_l/sd(d_l) with a public seed give, for each v of a public grid, the boundary u_l(v) at which the
share of paths that have crossed by look l is the amount spent by then; "worse" likewise on the other side, each side
alone, as if the other never stopped the trial. If less than one path is to be spent, the boundary is infinite.

Numbers of people are those that the shares lead to expect. The looks use the numbers that were really assigned.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32
from scipy.linalg import toeplitz
from scipy.special import ndtr, ndtri

from privrl.learners.trials.protocol import Protocol, Spending
from privrl.mdp.simulation import simulate_normals
from privrl.privacy.continual.toeplitz import SquareRoot

PATHS = 2**20
_SEED = 31
GRID: Float[np.ndarray, " V"] = 0.25 * 2.0 ** (-np.arange(15) / 2)
"""The public grid of variances of one outcome, from the largest possible one down."""
_MARGIN = 0.05  # of a quantile of simulated paths


def spend(shape: Spending, rate: float, t: Float[np.ndarray, " L"]) -> Float[np.ndarray, " L"]:
    """The part of an error rate that is spent at the share t of people."""
    if shape == "obrien-fleming":
        return 2.0 * ndtr(-ndtri(1.0 - rate / 2.0) / np.sqrt(t))
    return rate * np.log1p((math.e - 1.0) * t)


def increments_of_noise(looks: int) -> Float[np.ndarray, "L L"]:
    """The map from white noise to the increments of the noise of running sums."""
    decoder = SquareRoot(looks).decoding
    return np.diff(np.tril(toeplitz(decoder)), axis=0, prepend=0.0)


@dataclass(frozen=True)
class Design:
    """Numbers of people and noise of one policy against practice.

    Attributes:
        ends: the number of people at each look.
        phase: the number of the phase of each block.
        policy, practice: the share of each block that is assigned to the policy, and to practice.
        noise: the variance of white noise in a sum of rescaled outcomes of one arm.
    """

    ends: tuple[int, ...]
    phase: tuple[int, ...]
    policy: tuple[float, ...]
    practice: tuple[float, ...]
    noise: float

    @classmethod
    def from_protocol(cls, protocol: Protocol, arm: int, noise: float) -> "Design":
        """The design of one policy, as long as no arm is closed."""
        shares = protocol.shares
        ends, phase = tuple(protocol.ends.tolist()), tuple(protocol.phase_of.tolist())
        return cls(ends, phase, tuple(shares[:, arm].tolist()), tuple(shares[:, 0].tolist()), noise)

    @property
    def assigned(self) -> Float[np.ndarray, "2 L"]:
        """The expected number of people of each block in practice and in the policy's arm."""
        sizes = np.diff(np.array(self.ends, float), prepend=0.0)
        return sizes * np.array([self.practice, self.policy])

    @property
    def weights(self) -> Float[np.ndarray, "2 L L"]:
        """q and p: the weight of each block's sum in the estimate of each look (rows are looks)."""
        n, phase, L = self.assigned, np.array(self.phase), len(self.ends)
        found = np.zeros((2, L, L))
        for look in range(L):
            upto = np.arange(L) <= look
            total = n[:, upto].sum()
            for k in np.unique(phase[upto]):
                inside = upto & (phase == k)
                people = n[:, inside].sum(axis=1)
                found[:, look, inside] = (people.sum() / total / people)[:, None]
        return found

    def covariance(self, practice: float, policy: float) -> Float[np.ndarray, "L L"]:
        """The covariance of the estimates over looks, given the variance of one outcome in each arm."""
        weights, n = self.weights, self.assigned
        sampling = sum(v * (w * people) @ w.T for v, w, people in zip((practice, policy), weights, n, strict=True))
        spread = weights @ increments_of_noise(len(self.ends))
        return np.asarray(sampling + self.noise * sum(w @ w.T for w in spread))

    def spread(self) -> Float[np.ndarray, " L"]:
        """sum_k (n_k/n)^2 (1/n_1k + 1/n_0k): the sampling variance of each look's estimate for outcomes of variance
        1."""
        return np.einsum("alj,aj->l", self.weights**2, self.assigned)


@dataclass(frozen=True)
class Boundaries:
    """The boundaries of all looks for each variance of the grid.

    Attributes:
        upper: u, above which z means "better".
        lower: w, above which -z means "worse".
    """

    upper: Float[np.ndarray, "L V"]
    lower: Float[np.ndarray, "L V"]


def boundaries_of(protocol: Protocol, noise: float) -> tuple[Boundaries, ...]:
    """The boundaries of every policy of a protocol, each with an equal share of the error rates."""
    arms = range(1, len(protocol.arms))
    return tuple(_boundaries(Design.from_protocol(protocol, arm, noise), *_rates(protocol)) for arm in arms)


def _rates(protocol: Protocol) -> tuple[Spending, float, Spending, float]:
    """How much of the error rates one policy spends, and how."""
    policies = len(protocol.policies)
    return protocol.spending_better, protocol.better / policies, protocol.spending_worse, protocol.worse / policies


@functools.lru_cache(maxsize=256)
def _boundaries(
    design: Design, shape_better: Spending, better: float, shape_worse: Spending, worse: float
) -> Boundaries:
    rows = [boundaries_at(design, v, shape_better, better, shape_worse, worse) for v in _grid(design)]
    upper, lower = (np.stack(side, axis=1) for side in zip(*rows, strict=True))
    shape = (len(design.ends), len(GRID))  # without noise the variance does not matter
    return Boundaries(np.broadcast_to(upper, shape), np.broadcast_to(lower, shape))


def _grid(design: Design) -> list[float]:
    return GRID[:1].tolist() if design.noise == 0 else GRID.tolist()


@functools.lru_cache(maxsize=256)
def boundaries_at(
    design: Design,
    v: float,
    shape_better: Spending,
    better: float,
    shape_worse: Spending,
    worse: float,
    number: int = PATHS,
) -> tuple[Float[np.ndarray, " L"], Float[np.ndarray, " L"]]:
    """u and w of all looks for one variance."""
    t = np.array(design.ends) / design.ends[-1]
    paths = simulate_paths(design.covariance(v, v), number)
    return (
        _cross(paths, spend(shape_better, better, t)),
        _cross(-paths, spend(shape_worse, worse, t)),
    )


def boundaries_for(
    protocol: Protocol, noise: float, v: float, arm: int = 1, number: int = PATHS
) -> tuple[Float[np.ndarray, " L"], Float[np.ndarray, " L"]]:
    """u and w of one policy for the variance of the grid that is nearest to v, without the rest of the grid."""
    at = float(GRID[nearest(v)]) if noise > 0 else float(GRID[0])
    return boundaries_at(Design.from_protocol(protocol, arm, noise), at, *_rates(protocol), number)


def nearest(v: float) -> int:
    """The place in the grid of the variance nearest to v, by the ratio of the two."""
    return int(np.abs(np.log(np.maximum(v, 1e-12) / GRID)).argmin())


def simulate_paths(covariance: Float[np.ndarray, "L L"], number: int = PATHS) -> Float32[np.ndarray, "L N"]:
    """Paths of z over the looks with the correlations of a covariance."""
    deviation = np.sqrt(np.diag(covariance))
    root = np.linalg.cholesky(covariance / np.outer(deviation, deviation) + 1e-12 * np.eye(len(deviation)))
    return root.astype(np.float32) @ _white(len(deviation), number)


@functools.lru_cache(maxsize=2)
def _white(looks: int, number: int) -> Float32[np.ndarray, "L N"]:
    return simulate_normals(_SEED, (looks, number))


def _cross(paths: Float32[np.ndarray, "L N"], spent: Float[np.ndarray, " L"]) -> Float[np.ndarray, " L"]:
    """The boundaries at which the number of paths that have crossed is the amount spent, look by look.

    A path above a boundary has crossed by that look, so at most the amount spent by then is above it: only the largest
    z are candidates.
    """
    crossed = np.zeros(paths.shape[1], bool)
    number, found = 0, np.full(len(spent), np.inf)
    for look, target in enumerate(np.floor(spent * paths.shape[1]).astype(int)):
        if target <= number:
            continue
        for threshold in (-ndtri(spent[look]) - _MARGIN, -np.inf):
            high = np.flatnonzero(paths[look] > np.float32(threshold))
            high = high[~crossed[high]]
            if len(high) > target - number:
                break
        z = paths[look, high]
        place = len(high) - (target - number) - 1
        found[look] = np.partition(z, place)[place]
        over = high[z > found[look]]
        crossed[over] = True
        number += len(over)
    return found


@dataclass(frozen=True)
class Expected:
    """What a trial can be expected to do, for given means of the arms.

    Attributes:
        better, worse: the probabilities of the verdicts.
        people: the mean number of people at the deciding look.
        enrolled: the same with those who arrive while the last records are awaited.
    """

    better: float
    worse: float
    people: float
    enrolled: float


def expect(
    protocol: Protocol,
    noise: float,
    practice: float,
    gain: float,
    arm: int = 1,
    number: int = PATHS,
    arriving: int = 0,
) -> Expected:
    """The probabilities of the verdicts about one policy if outcomes are 0 or 1, by the normal approximation.

    Arguments:
        noise: as in `Design`; 0 without privacy.
        practice: the mean of the rescaled outcome in practice.
        gain: the policy's mean less that of practice.
        number: the number of simulated paths; fewer are quicker and less accurate.
        arriving: how many people arrive during the patience. The trial enrols at most `protocol.people`.
    """
    design = Design.from_protocol(protocol, arm, noise)
    n, policy = design.assigned, practice + gain
    own = (practice * (1 - practice), policy * (1 - policy))
    separate = sum(v * np.einsum("lj,j->l", w**2, k) for v, w, k in zip(own, design.weights, n, strict=True))
    pooled = (practice * n[0] + policy * n[1]).sum() / n.sum()
    sampling = np.maximum(pooled * (1 - pooled) * design.spread(), separate)
    noisy = np.diag(design.covariance(0.0, 0.0))
    covariance = design.covariance(*own)
    se = np.sqrt(sampling + noisy)
    z = (simulate_paths(covariance, number) * np.sqrt(np.diag(covariance))[:, None] + gain) / se[:, None]
    upper, lower = boundaries_for(protocol, noise, float(np.median(sampling / design.spread())), arm, number)
    running = np.ones(z.shape[1], bool)
    verdicts, people, enrolled = [0, 0], 0.0, 0.0
    for look, end in enumerate(design.ends):
        over, under = running & (z[look] > upper[look]), running & (-z[look] > lower[look])
        running &= ~(over | under)
        stopped = int(over.sum()), int(under.sum())
        verdicts = [total + new for total, new in zip(verdicts, stopped, strict=True)]
        paths = sum(stopped) if look < len(design.ends) - 1 else sum(stopped) + int(running.sum())
        people += end * paths
        enrolled += min(end + arriving, design.ends[-1]) * paths
    shares = (total / z.shape[1] for total in (*verdicts, people, enrolled))
    return Expected(*shares)
