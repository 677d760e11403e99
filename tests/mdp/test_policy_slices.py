"""What a policy on measurements does along its columns: its choices, and changes of action known by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from privrl.mdp.measured_policy import MeasuredPolicy
from privrl.mdp.measurements import Category, Feature
from privrl.mdp.policy_slices import importance, map_policy, reference, slice_policy

COLUMNS = (Feature("b", 0.1, 1000, log=True), Feature("a", 0, 100, missing=True), Category("c", ("x", "y", "z")))
# phi = (1/2, u_a, u_b, u_a^2 - 1/2, u_b^2 - 1/2, missing a / 2, x / 2, y / 2, z / 2), in the order of names


def policy(**weights: float) -> MeasuredPolicy:
    """Two actions that practice takes alike; action 1 is chosen where the weighted sum of features is positive."""
    names = ("one", "a", "b", "aa", "bb", "missing", "x", "y", "z")
    theta = jnp.array([[0.0] * 9, [weights.get(name, 0.0) for name in names]])
    practice = jnp.zeros((9, 2)).at[0].set(jnp.array([1.2, 0.8]))
    centre, half_width = jnp.array([0.2, 0.0]), jnp.array([0.4, 0.5])
    return MeasuredPolicy(COLUMNS, (), centre, half_width, theta, practice, jnp.zeros(()), jnp.array(0.1))


def test_the_reference_is_the_released_median_and_the_first_value() -> None:
    np.testing.assert_allclose(reference(policy()), [10.0, 60.0, 0.0])  # in the middle of decades; .2 of -1..1


def test_an_action_begins_where_the_weights_say() -> None:
    found = slice_policy(policy(a=1.0), 1)  # u_a > 0, that is a > 60
    assert [part.action for part in found.advised] == [0, 1]
    assert found.advised[0].low == 0 and found.advised[1].high == 100
    assert found.advised[0].high == pytest.approx(60, abs=0.05)
    assert found.missing == (0, 0) and found.middle == pytest.approx((40, 60, 80))
    assert [part.action for part in found.practised] == [0]


def test_a_logarithmic_column_changes_at_the_right_value_and_a_category_by_value() -> None:
    cut = slice_policy(policy(b=1.0, one=-1.0), 0)  # u_b > 1/2, that is v_b > 1/4: 10^1.5
    assert cut.advised[0].high == pytest.approx(10**1.5, rel=0.01) and cut.missing is None
    values = slice_policy(policy(y=1.0), 2)
    assert [(part.low, part.high, part.action) for part in values.advised] == [(0, 1, 0), (1, 2, 1), (2, 3, 0)]
    assert values.missing is None and values.middle is None


def test_a_value_that_is_missing_has_its_own_action() -> None:
    assert slice_policy(policy(a=1.0, missing=1.0), 1).missing == (1, 0)


def test_importance_is_how_often_the_choice_changes() -> None:
    found = importance(policy(a=1.0))
    assert found[0] == found[2] == 0.0 and found[1] == pytest.approx(
        0.5, abs=0.03
    )  # two fair signs differ half the time
    both = importance(policy(a=1.0, b=0.5))
    assert both[1] > both[0] > 0.0
    assert np.array_equal(importance(policy(a=1.0, b=0.5)), both)
    assert importance(policy(y=1.0, one=-0.5))[2] == pytest.approx(4 / 9, abs=0.03)  # y or not: 2 (1/3) (2/3)


def test_a_map_agrees_with_the_policy_at_every_point() -> None:
    one = policy(a=1.0, b=0.5, aa=-0.3, missing=0.4)
    found = map_policy(one, 1, 0)
    assert found.advised.shape == (len(found.y_values) + 1, len(found.x_values) + 1)
    for row, column in ((0, 0), (60, 70), (120, 140), (-1, 7), (9, -1), (-1, -1)):
        x, y = (np.append(values, np.nan) for values in (found.x_values, found.y_values))
        observation = [y[row], x[column], 0.0]
        assert found.advised[row, column] == one(observation)
        assert found.practised[row, column] == int(np.argmax(one.practice_probabilities(observation)))


def test_whatever_a_saved_policy_holds_there_is_a_picture() -> None:
    one = policy(a=1.0)
    strange = MeasuredPolicy(
        COLUMNS,
        (),
        jnp.array([jnp.nan, 7.0]),
        jnp.array([-1.0, jnp.inf]),
        one.advantages,
        one.practice,
        one.anchor,
        one.support,
    )
    assert np.isfinite(importance(strange)).all() and np.isfinite(reference(strange)).all()
    assert slice_policy(strange, 1).middle is not None
