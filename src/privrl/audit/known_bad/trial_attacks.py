"""Trials that reveal more than they state: a missing record that moves the sum, and a count with too little noise."""

import dataclasses
import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from privrl.audit.attacks.trial_attack import attack_trial
from privrl.audit.known_bad.case import DELTA, EPSILON, Audited, audit_epsilon_by_distance, case
from privrl.contracts.learner import Plan
from privrl.learners.trials.protocol import Arm, Outcome, Protocol
from privrl.learners.trials.trial import Trial
from privrl.privacy.trust.channels import RunningChannel
from privrl.statistics.arm_sums import ArmSums, Outcomes

_PILOT = Protocol(
    "pilot", 100, (Arm("practice"), Arm("advice")), Outcome("survival"), epsilon=EPSILON, delta=DELTA, looks=4
)


class _MissingCounts(ArmSums):
    """A missing record contributes its value to the sum: (0, v - c) for v = 0, and noise is for received records."""

    def contribution(self, record: Outcomes, query: Plan) -> Float[Array, "A G 2"]:
        received = super().contribution(record, query)
        present = super().contribution(Outcomes(jnp.full_like(record.values, self.low)), query)
        missing = present * jnp.asarray([0.0, 1.0])[None, None]
        return jnp.where(jnp.isfinite(record.values[self.which]), received, missing)


class _ExactCount(ArmSums):
    """The number received is released with the noise of the sum, as if it cost nothing: (1, G - c)."""

    @property
    def record_weight(self) -> float:
        return 1.0


def _audit(key: PRNGKeyArray, trials: int, kind: type[ArmSums], centre: float) -> Audited:
    attack = attack_trial(Trial(_PILOT), (1.0, np.nan))
    channels = {}
    for name, channel in attack.transcript.channels.items():
        assert isinstance(channel, RunningChannel) and isinstance(channel.statistic, ArmSums)
        kept = {f.name: getattr(channel.statistic, f.name) for f in dataclasses.fields(ArmSums) if f.init}
        channels[name] = eqx.tree_at(lambda c: c.statistic, channel, kind(**kept | {"centre": centre}))
    attack = dataclasses.replace(attack, transcript=dataclasses.replace(attack.transcript, channels=channels))
    found = audit_epsilon_by_distance(attack.scores(key, trials), EPSILON)
    assert attack.mu is not None and math.isfinite(attack.mu)
    return dataclasses.replace(found, detail="a person of a known arm: outcome 1, or a missing record")


@case(
    paper="practice",
    trials=60_000,
    flaw="a missing record counts as (0, v - 1/2) in the number received and the sum of a trial's arm",
    proof="a missing record moves the count by 1 and the sum by as much as any other: L2 sqrt(7)/2, not 1",
)
def missing_record_in_the_sum(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """A trial whose count has noise of variance 4/3 that of the sum, for the centre 1/2."""
    return _audit(key, trials, _MissingCounts if flawed else ArmSums, 0.5)


@case(
    paper="practice",
    trials=60_000,
    flaw="the number received in a trial's arm is released with the noise of the sum",
    proof="a missing record moves the count by 1 and the sum by 7/8: L2 1.33, not 1",
)
def number_received_with_the_noise_of_the_sum(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """A trial whose count and sum have noise of the same variance, for the centre 1/8."""
    return _audit(key, trials, _ExactCount if flawed else ArmSums, 0.125)


CASES = (missing_record_in_the_sum, number_received_with_the_noise_of_the_sum)
