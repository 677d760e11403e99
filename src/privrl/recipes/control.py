"""Recipes for linear systems."""

from privrl.learners.control.cautious_lq import CautiousLQ
from privrl.learners.control.ofu_lq import OFULQ
from privrl.learners.published import ofu_lq_noise
from privrl.mdp.lq import LQTask
from privrl.recipes.recipe import Recipe


def _cautious_lq(task: LQTask) -> CautiousLQ:
    return CautiousLQ(task)


def _ofu_lq(task: LQTask) -> OFULQ:
    return OFULQ(task)


def _certainty_equivalence(task: LQTask) -> OFULQ:
    return OFULQ(task, strategy="certainty")


def _ofu_lq_paper(task: LQTask) -> OFULQ:
    return OFULQ.paper(task)


CONTROL = (
    Recipe("cautious-lq", "control", "none", "control from surprises, with a gate against harm", _cautious_lq),
    Recipe("private-lq", "control", "central", "CautiousLQ on noisy surprises, joint privacy", _cautious_lq),
    Recipe("ofu-lq", "control", "none", "optimistic control of an unknown linear system", _ofu_lq),
    Recipe(
        "certainty-equivalence",
        "control",
        "none",
        "the gains of the estimate, with exploration",
        _certainty_equivalence,
    ),
    Recipe("private-ofu-lq", "control", "central", "OFULQ on continually released sums, joint privacy", _ofu_lq),
    Recipe(
        "private-ofu-lq@paper",
        "control",
        "central",
        "OFULQ with the printed noise and constants: the zero controller for tens of thousands of people",
        _ofu_lq_paper,
        published=ofu_lq_noise,
        claims_epsilon=True,
        source="chowdhury-zhou-shroff",
        continual="tree",
    ),
)
