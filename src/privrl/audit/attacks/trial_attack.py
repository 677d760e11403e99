"""The attack on a randomised trial: one person of a known arm has one record in world 0 and another in world 1."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from privrl.audit.attacks.channel_attack import ChannelAttack
from privrl.audit.surface.recorded_run import RunTranscript
from privrl.contracts.learner import Plan
from privrl.learners.trials.trial import Trial
from privrl.statistics.arm_sums import Assignment, Outcomes
from privrl.studies.study import Study

PAIRS = {"outcome 0 or 1": (0.0, 1.0), "1 or missing": (1.0, np.nan), "0 or missing": (0.0, np.nan)}
"""The rescaled outcomes of the two records of the person under attack."""


def attack_trial(trial: Trial, pair: tuple[float, float], arm: int = 1, block: int = 0) -> ChannelAttack:
    """Attack all releases of a trial together, by the shipped channels.

    Arguments:
        pair: the rescaled outcomes of the person in the two worlds, for all outcomes; NaN for a missing record.
        arm: the person's arm, which is the same in both worlds.
        block: the person's block.
    """
    protocol = trial.protocol
    study = Study.online(trial, protocol.privatizer, protocol.people)
    state, cells = trial.init(), jnp.zeros(len(protocol.subgroups), int)
    plan = Plan(state, Assignment(jnp.asarray(arm), cells))
    ends = tuple(int(end) for end in protocol.ends)
    transcript = RunTranscript(
        trial, protocol.privatizer, study.ledger, study.channels(), ends, (plan,) * (len(ends) + 1), ()
    )
    low, high = (np.array([getattr(one, bound) for one in protocol.outcomes], float) for bound in ("low", "high"))
    values: Float[np.ndarray, "2 K"] = low + np.array(pair)[:, None] * (high - low)
    return ChannelAttack(transcript, ((block,), (block,)), Outcomes(jnp.asarray(values)))
