"""The interface of known-bad cases: a mechanism that claims more privacy than it gives, and the attack that proves it.

Every attack runs its mechanism in world 0 and in world 1, which differ in one person, and reduces the output of
each run to one score. A larger score favours world 1. There are two ways from scores to a lower bound:

- **by counting**, for any mechanism: a threshold is chosen on half of the runs, and right and wrong guesses on the
other half are counted. From n runs in each world no more than about ln(n/20) can be proved.

- **by distance**, if scores are normal with one spread (linear functions of Gaussian releases): the distance of the
means over the spread is at most mu if the release is mu-GDP. The spread is measured and not taken from the
mechanism, so a mechanism that adds more noise than it claims is not accused. This reaches any epsilon.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from privrl.audit.bounds import bound_epsilon
from privrl.privacy.accounting.gdp import gdp_epsilon
from privrl.privacy.noise.distributions import GaussianNoise, SymmetricNoise
from privrl.privacy.noise.sources import standard_normal

EPSILON, DELTA = 1.0, 1e-5
CONFIDENCE = 0.9999  # a mechanism at exactly its claim is accused once in 10,000 audits, not once in 20
_THRESHOLDS = 50
Scores = Float[np.ndarray, "2 n"]
Score = Callable[[PRNGKeyArray, Int[Array, ""]], Float[Array, ""]]


@dataclass(frozen=True)
class Audited:
    """The audited number of an attack and the claimed one, both in `unit`.

    For `epsilon` and `rho` the audited number is a lower bound that holds with the case's confidence, and the case
    is caught if it exceeds the claim. For a `success rate` the claim is the rate of blind guessing.
    """

    claimed: float
    audited: float
    unit: Literal["epsilon", "rho", "success rate"]
    caught: bool
    detail: str = ""


@dataclass(frozen=True)
class Case:
    """A flaw that an audit must catch every time: its description, its source, why it leaks, and the attack.

    The corrected mechanism must not be caught, otherwise the attack would prove nothing about the flaw.

    Attributes:
        name: the name of the case.
        paper: the tag of the printed line, such as `sahu A1:12`, or `practice`.
        flaw: the flaw, in one sentence.
        proof: why it leaks, in one sentence.
        run: `run(key, trials, flawed=...)` runs the flawed or the corrected mechanism `trials` times in each of two
            neighbouring worlds (or once with that many people, if the detail states it).
        trials: the size at which the case is caught every time.
    """

    name: str
    paper: str
    flaw: str
    proof: str
    run: Callable[..., Audited]
    trials: int

    def attack(self, key: PRNGKeyArray, trials: int) -> Audited:
        return self.run(key, trials, flawed=True)

    def attack_corrected(self, key: PRNGKeyArray, trials: int) -> Audited:
        return self.run(key, trials, flawed=False)


def case(*, paper: str, trials: int, flaw: str, proof: str) -> Callable[[Callable[..., Audited]], Case]:
    """Make the case of an attack; its name is that of the function, with dashes."""
    return lambda run: Case(run.__name__.replace("_", "-"), paper, flaw, proof, run, trials)


def score_both_worlds(score: Score, key: PRNGKeyArray, trials: int) -> Scores:
    """Return `score(key, world)` of `trials` independent runs in world 0 and as many in world 1."""
    keys = jax.random.split(key, (2, trials))
    runs = jax.vmap(jax.vmap(score, in_axes=(0, None)))
    return np.asarray(jax.jit(runs)(keys, jnp.arange(2)))


def score_gaussian_noise(
    terms: Float[Array, "2 ..."], noise: GaussianNoise | SymmetricNoise, key: PRNGKeyArray, trials: int
) -> Scores:
    """Return exact log ratios, up to a constant, of `terms[world]` with noise of density exp(-|z|^2/(2 scale^2)).

    Gaussian and symmetric noise (in Frobenius norm) have this density. The attacker knows the terms of other
    people, so they are left out.
    """

    def log_ratio(key: PRNGKeyArray, world: Int[Array, ""]) -> Float[Array, ""]:
        released = terms[world] + noise.from_white(standard_normal(key, noise.shape))
        return jnp.vdot(released, terms[1] - terms[0]) / noise.scale**2

    return score_both_worlds(log_ratio, key, trials)


def audit_by_counting(scores: Scores, claimed: float = EPSILON, detail: str = "") -> Audited:
    """Return the epsilon, at `DELTA`, that guessing the world by a threshold of the score proves (Clopper-Pearson)."""
    audited = bound_epsilon(scores, DELTA, CONFIDENCE, gaussian=False, thresholds=_THRESHOLDS)
    return Audited(claimed, audited, "epsilon", audited > claimed, detail)


def distance(scores: Scores, confidence: float = CONFIDENCE) -> float:
    """Bound the distance of the means of two normal scores from below, in units of their common spread.

    t = (difference of means)/(s sqrt(2/n)), s the pooled spread, has a noncentral t distribution with f = 2n - 2
    degrees of freedom around sqrt(n/2) times the distance; (t (1 - 1/(4 f)) - centre)/sqrt(1 + t^2/(2 f)) is
    standard normal to an error that vanishes with n (Johnson and Welch), which is solved for the centre.
    """
    from scipy.special import ndtri

    n = scores.shape[1]
    freedom = 2 * n - 2
    spread = math.sqrt(scores.var(axis=1).sum() * n / freedom)
    t = float(np.diff(scores.mean(axis=1))[0]) / (spread * math.sqrt(2 / n))
    centre = t * (1 - 1 / (4 * freedom)) - float(ndtri(confidence)) * math.sqrt(1 + t**2 / (2 * freedom))
    return max(centre * math.sqrt(2 / n), 0.0)


def audit_rho_by_distance(scores: Scores, claimed: float, detail: str = "") -> Audited:
    """Return the rho = mu^2/2 that the distance of normal scores proves."""
    audited = distance(scores) ** 2 / 2
    return Audited(claimed, audited, "rho", audited > claimed, detail)


def audit_epsilon_by_distance(scores: Scores, claimed: float, detail: str = "") -> Audited:
    """Return the epsilon, at `DELTA`, that the distance of normal scores proves."""
    audited = gdp_epsilon(distance(scores), DELTA)
    return Audited(claimed, audited, "epsilon", audited > claimed, detail)
