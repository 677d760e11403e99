"""Signed terms of people who return, and Laplace noise for a norm that is not its own."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from privrl.audit.known_bad.case import (
    DELTA,
    EPSILON,
    Audited,
    audit_by_counting,
    audit_epsilon_by_distance,
    case,
    score_both_worlds,
    score_gaussian_noise,
)
from privrl.contracts.release import Declared
from privrl.contracts.statistic import AbstractStatistic, Adjacency
from privrl.privacy.continual.participation import Participation
from privrl.privacy.noise.bounding import clip_by_norm
from privrl.privacy.noise.distributions import GaussianNoise
from privrl.privacy.noise.sources import standard_laplace
from privrl.privacy.trust.channels import RunningChannel
from privrl.privacy.trust.privatizers import Central, Local, vector_channel

_OFTEN, _BLOCKS = Participation(3, 1), 4


class _Signed(AbstractStatistic):
    """A vector of norm at most 1 with entries of both signs, which is the record itself."""

    shape: tuple[int, ...] = eqx.field(static=True, default=(4,))
    symmetric: bool = eqx.field(static=True, default=False)

    def contribution(self, record: Float[Array, " 4"], query: object) -> Float[Array, " 4"]:
        del query
        return clip_by_norm(record, 1.0)

    def l2(self, adjacency: Adjacency) -> float:
        return 2.0 if adjacency == "replace-one" else 1.0

    def l1(self, adjacency: Adjacency) -> float:
        return 2.0 * self.l2(adjacency)


class _NeverOpposite(_Signed):
    """The same vectors, of which it says that no two have a negative inner product."""

    @property
    def nonnegative(self) -> bool:
        return True


@case(
    paper="practice",
    trials=10_000,
    flaw="signed terms of people who return get the noise of terms whose inner products are never negative",
    proof="terms of one person may be opposite to those of another: 2 C, where sqrt(2) C was paid for",
)
def opposite_terms_taken_for_orthogonal(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """Running sums with a person in the first three blocks, whose terms are all u in one world and -u in the other."""
    private = Central(epsilon=EPSILON, delta=DELTA)
    declared = Declared("vectors", _NeverOpposite() if flawed else _Signed(), access="running", times=_BLOCKS)
    channel = private.channel(declared, private.calibrate([declared], _OFTEN))
    assert isinstance(channel, RunningChannel)
    encoder = channel.continual.encoder()
    image = np.outer(encoder[:, : _OFTEN.times].sum(axis=1), np.eye(4)[0])
    noise = GaussianNoise(channel.scale, image.shape)
    scores = score_gaussian_noise(jnp.asarray(np.stack([-image, image])), noise, key, trials)
    return audit_epsilon_by_distance(scores, EPSILON, f"{_BLOCKS} blocks, {_OFTEN.times} visits")


@case(
    paper="practice",
    trials=20_000,
    flaw="a person sends a vector with Laplace noise for its L2 norm",
    proof="the losses of the entries add up: four entries of 1/2 have L1 norm 2 and L2 norm 1",
)
def laplace_noise_for_the_l2_norm(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """One local report with a pure budget; the vector has four entries of 1/2, or of -1/2."""
    private, declared = Local(epsilon=EPSILON), Declared("vectors", _Signed(), access="running")
    channel = vector_channel(declared, private.calibrate([declared]), "laplace")
    scale = channel.scale * (0.5 if flawed else 1.0)

    def log_ratio(key: PRNGKeyArray, world: Int[Array, ""]) -> Float[Array, ""]:
        term = channel.statistic.contribution(jnp.full(4, 0.5), None)
        report = (2.0 * world - 1.0) * term + scale * standard_laplace(key, (4,))
        return (jnp.abs(report + term) - jnp.abs(report - term)).sum() / scale

    return audit_by_counting(score_both_worlds(log_ratio, key, trials), detail="one report")


CASES = (opposite_terms_taken_for_orthogonal, laplace_noise_for_the_l2_norm)
