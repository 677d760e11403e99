"""Reports that people make private themselves, and that say more than they claim."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from privrl.audit.known_bad.case import EPSILON, Audited, audit_by_counting, case, score_both_worlds
from privrl.contracts.release import Declared
from privrl.contracts.statistic import AbstractStatistic, Adjacency
from privrl.privacy.noise.bounding import clip_by_norm
from privrl.privacy.trust.direction_channels import DirectionChannel
from privrl.privacy.trust.privatizers import Local


class _Ball(AbstractStatistic):
    """A vector of norm at most 1, which is the record itself."""

    shape: tuple[int, ...] = eqx.field(static=True, default=(4,))
    symmetric: bool = eqx.field(static=True, default=False)

    def contribution(self, record: Float[Array, " 4"], query: object) -> Float[Array, " 4"]:
        del query
        return clip_by_norm(record, 1.0)

    def l2(self, adjacency: Adjacency) -> float:
        return 2.0 if adjacency == "replace-one" else 1.0

    def l1(self, adjacency: Adjacency) -> float:
        return 2.0 * self.l2(adjacency)


@case(
    paper="practice",
    trials=4_000,
    flaw="a person sends a random direction that is as long as their own vector",
    proof="the length of the report is that of the vector; a direction is private if its length is public",
)
def direction_of_private_length(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """One local report with a pure budget; the vector is long in one world and short in the other."""
    private, declared = Local(epsilon=EPSILON), Declared("vectors", _Ball(), access="running")
    channel = private.channel(declared, private.calibrate([declared]))
    assert isinstance(channel, DirectionChannel)
    records = jnp.asarray(np.array([[0.1, 0.0, 0.0, 0.0], [-1.0, 0.0, 0.0, 0.0]]))

    def score(key: PRNGKeyArray, world: Int[Array, ""]) -> Float[Array, ""]:
        record = records[world]
        report = channel.report(record, None, 0, key) / channel.radius
        report = report * jnp.linalg.norm(record) if flawed else report
        return 10.0 * jnp.linalg.norm(report) - jnp.sign(report[0])

    return audit_by_counting(score_both_worlds(score, key, trials), detail="one report")


CASES = (direction_of_private_length,)
