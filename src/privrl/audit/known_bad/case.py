"""What a known-bad case is: a mechanism that claims more privacy than it gives, and the attack that shows it.

Every attack runs its mechanism in world 0 and in world 1, which differ in one person, and boils what it sees down to
one score per run that is larger where world 1 is likelier. Two ways lead from there to a lower bound:

- **by counting**, for any mechanism: a threshold is chosen on half of the runs, and right and wrong guesses on the
  other half are counted. From n runs in each world no more than about ln(n/20) can be proved.
- **by distance**, where scores are normal with one spread (linear functions of Gaussian releases): the distance of the
  means over the spread is at most mu if the release is mu-GDP. The spread is measured and not taken from the mechanism,
  so a mechanism that adds more noise than it says is not accused. This reaches any epsilon.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from privrl.audit.bounds import bound_of
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
    """What an attack found, beside what was claimed, both in `unit`.

    For `epsilon` and `rho` the audited number is a lower bound that holds with the case's confidence, and the case is
    caught when it exceeds the claim. For a `success rate` the claim is what blind guessing would reach.
    """

    claimed: float
    audited: float
    unit: Literal["epsilon", "rho", "success rate"]
    caught: bool
    detail: str = ""


@dataclass(frozen=True)
class Case:
    """A flaw that an audit must catch every time: what it is, where it is printed, why it leaks, and the attack.

    `paper` is the tag of the printed line, such as `sahu A1:12`. `run(key, trials, flawed=...)` runs the mechanism, as
    printed or put right, `trials` times in each of two neighbouring worlds (or once on that many people, where the
    detail says so); `trials` is the size at which the case is caught every time. The mechanism put right must not be
    caught: otherwise the attack would prove nothing about the flaw.
    """

    name: str
    paper: str
    flaw: str
    proof: str
    run: Callable[..., Audited]
    trials: int

    def attack(self, key: PRNGKeyArray, trials: int) -> Audited:
        return self.run(key, trials, flawed=True)

    def corrected(self, key: PRNGKeyArray, trials: int) -> Audited:
        return self.run(key, trials, flawed=False)


def case(*, paper: str, trials: int, flaw: str, proof: str) -> Callable[[Callable[..., Audited]], Case]:
    """Makes the case of an attack, named as the function is, with dashes."""
    return lambda run: Case(run.__name__.replace("_", "-"), paper, flaw, proof, run, trials)


def in_both_worlds(score: Score, key: PRNGKeyArray, trials: int) -> Scores:
    """`score(key, world)` of `trials` independent runs in world 0 and as many in world 1."""
    keys = jax.random.split(key, (2, trials))
    runs = jax.vmap(jax.vmap(score, in_axes=(0, None)))
    return np.asarray(jax.jit(runs)(keys, jnp.arange(2)))


def in_gaussian_noise(
    terms: Float[Array, "2 ..."], noise: GaussianNoise | SymmetricNoise, key: PRNGKeyArray, trials: int
) -> Scores:
    """Exact log ratios, up to a constant, of `terms[world]` with noise of density exp(-|z|^2/(2 scale^2)).

    So Gaussian and symmetric noise (in Frobenius norm) are; what others add is known to the attacker and left out.
    """

    def log_ratio(key: PRNGKeyArray, world: Int[Array, ""]) -> Float[Array, ""]:
        released = terms[world] + noise.from_white(standard_normal(key, noise.shape))
        return jnp.vdot(released, terms[1] - terms[0]) / noise.scale**2

    return in_both_worlds(log_ratio, key, trials)


def by_counting(scores: Scores, claimed: float = EPSILON, detail: str = "") -> Audited:
    """The epsilon, at `DELTA`, that guessing the world by a threshold of the score proves (Clopper-Pearson)."""
    audited = bound_of(scores, DELTA, CONFIDENCE, gaussian=False, thresholds=_THRESHOLDS)
    return Audited(claimed, audited, "epsilon", audited > claimed, detail)


def distance(scores: Scores, confidence: float = CONFIDENCE) -> float:
    """A lower bound on the distance of the means of two normal scores, in units of their common spread.

    t = (difference of means)/(s sqrt(2/n)), s the pooled spread, has a noncentral t distribution with f = 2n - 2
    degrees of freedom around sqrt(n/2) times the distance; (t (1 - 1/(4 f)) - centre)/sqrt(1 + t^2/(2 f)) is standard
    normal to an error that vanishes with n (Johnson and Welch), which is solved for the centre.
    """
    from scipy.special import ndtri

    n = scores.shape[1]
    freedom = 2 * n - 2
    spread = math.sqrt(scores.var(axis=1).sum() * n / freedom)
    t = float(np.diff(scores.mean(axis=1))[0]) / (spread * math.sqrt(2 / n))
    centre = t * (1 - 1 / (4 * freedom)) - float(ndtri(confidence)) * math.sqrt(1 + t**2 / (2 * freedom))
    return max(centre * math.sqrt(2 / n), 0.0)


def rho_by_distance(scores: Scores, claimed: float, detail: str = "") -> Audited:
    """The rho = mu^2/2 that the distance of normal scores proves."""
    audited = distance(scores) ** 2 / 2
    return Audited(claimed, audited, "rho", audited > claimed, detail)


def epsilon_by_distance(scores: Scores, claimed: float, detail: str = "") -> Audited:
    """The epsilon, at `DELTA`, that the distance of normal scores proves."""
    audited = gdp_epsilon(distance(scores), DELTA)
    return Audited(claimed, audited, "epsilon", audited > claimed, detail)
