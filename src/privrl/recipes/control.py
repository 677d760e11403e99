"""Recipes for linear systems."""

from functools import partial

from privrl.learners.control.cautious_lq import CautiousLQ
from privrl.learners.control.ofu_lq import OFULQ
from privrl.learners.published_noise import ofu_lq_noise
from privrl.recipes.papers import papers
from privrl.recipes.recipe import Algorithm, Recipe

_CAUTIOUS = Algorithm(
    CautiousLQ,
    "control",
    name="cautious-lq",
    build=CautiousLQ,
    cites=(papers["chowdhury-zhou-shroff"],),
    releases={
        "surprises": "how far people's systems were from what had been predicted",
        "first states": "how large the first states were",
    },
)
_OFU = Algorithm(
    OFULQ,
    "control",
    name="OFU",
    build=OFULQ,
    cites=(papers["chowdhury-zhou-shroff"],),
    releases={
        "moments": "what followed each feature",
        "gram": "how often each direction of the features was seen",
        "cross": "how inputs and states led to the next state",
    },
)

CONTROL = (
    Recipe("cautious-lq", _CAUTIOUS, "none", "control from surprises, with a gate against harm"),
    Recipe("private-lq", _CAUTIOUS, "central", "CautiousLQ on noisy surprises, joint privacy"),
    Recipe("ofu-lq", _OFU, "none", "optimistic control of an unknown linear system"),
    Recipe(
        "certainty-equivalence",
        _OFU,
        "none",
        "the gains of the estimate, with exploration",
        partial(OFULQ, strategy="certainty"),
        title="certainty equivalence, no privacy",
    ),
    Recipe(
        "private-ofu-lq",
        _OFU,
        "central",
        "OFULQ on continually released sums, joint privacy",
        title="OFU with tight noise",
    ),
    Recipe(
        "private-ofu-lq@paper",
        _OFU,
        "central",
        "OFULQ with the printed noise and constants: the zero controller for tens of thousands of people",
        OFULQ.paper,
        title="OFU as published",
        published=ofu_lq_noise,
        claims_epsilon=True,
        source="chowdhury-zhou-shroff",
        continual="tree",
    ),
)
