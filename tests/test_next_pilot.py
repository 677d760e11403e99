"""An evaluation ends with the pilot that would settle the question."""

import pytest

from privrl.cli.next_pilot import suggest_pilot
from privrl.evaluation.confidence import Interval
from privrl.evaluation.estimates import Evaluation
from privrl.mdp.assisted import AssistedPolicy


def evaluation(practice: float, gain: float | None) -> Evaluation:
    policy = AssistedPolicy([0], [0.5], horizon=100)
    named = None if gain is None else Interval(gain, gain - 0.1, gain + 0.1, gain - 0.08, gain + 0.08)
    return Evaluation(policy, 100, Interval(*[practice] * 5), Interval(*[0.0] * 5), model_gain=named)


def test_the_suggestion_is_the_one_of_the_plan():
    found = suggest_pilot(evaluation(0.625, 0.104), (0.0, 1.0))
    assert (found.people, found.points) == (1400, 10)
    assert (
        "a pilot with 1,400 people would show a gain of 10 points in nine of ten cases at epsilon 1" in found.sentence
    )


def test_the_suggestion_names_the_folder_or_says_that_no_policy_was_kept():
    given = (evaluation(0.625, 0.104), (0.0, 1.0))
    assert "`privrl pilot init 'my policy' --people 1400 " in suggest_pilot(*given, "my policy").sentence
    none = suggest_pilot(*given, None).sentence
    assert "pilot init" not in none and "fit without `--require-better`" in none


@pytest.mark.parametrize(("practice", "gain"), [(0.99, 0.5), (0.5, -0.2), (-3.0, None), (7.0, 0.3)])
def test_every_evaluation_has_a_suggestion(practice, gain):
    found = suggest_pilot(evaluation(practice, gain), (0.0, 5.0))
    assert found.gain > 0 and found.points is None and found.sentence
