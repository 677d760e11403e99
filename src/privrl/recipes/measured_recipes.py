"""Recipes that learn from a table of measurements."""

from privrl.learners.continuous.lap import LAP
from privrl.recipes.papers import papers
from privrl.recipes.recipe import Algorithm, MeasuredProblem, Recipe


def _lap(problem: MeasuredProblem) -> LAP:
    sizes = (problem.columns, problem.num_actions, problem.horizon)
    return LAP(*sizes, problem.rewards_at_end, largest_reward=problem.largest_reward, products=problem.products)


_LAP = Algorithm(
    LAP,
    "measured",
    build=_lap,
    cites=(papers["privrl"],),
    releases={
        "columns": "how each measurement is distributed between its bounds",
        "gram": "how often each direction of the features was seen, by action",
        "returns": "how well records went on, along each feature",
        "round": "how much better or worse each action turned out than was expected, along each feature",
        "gram-norms": "how much a record has of all features, to bound its weight",
        "returns-norms": "the same, for how well it went on",
        "round-norms": "how far a record was from what was expected, to bound its weight",
    },
)

MEASURED = (
    Recipe("lap", _LAP, "none", "linear advantages of actions on quadratic features, near practice"),
    Recipe("dp-lap", _LAP, "central", "LAP, for real-valued measurements with gaps"),
)
