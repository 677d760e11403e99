"""Declared columns: bounds, lists and edges are checked, scaled and binned as they say."""

import jax.numpy as jnp
import numpy as np
import pytest

from privrl.mdp.measurements import (
    BinnedAction,
    Category,
    Feature,
    check_measurements,
    describe_product_actions,
    product_actions,
)
from privrl.mdp.quadratic_features import positions


def scaled(feature, values):
    return positions((feature,), jnp.asarray(values)[:, None])[:, 0]


def test_a_feature_moves_values_to_its_bounds_and_keeps_missing_ones():
    feature = Feature("map", 30, 130, missing=True)
    np.testing.assert_array_equal(feature.clip(np.array([10.0, 80.0, 200.0, np.nan])), [30, 80, 130, np.nan])
    np.testing.assert_allclose(scaled(feature, [10.0, 80.0, 200.0, np.nan]), [-1, 0, 1, np.nan])


def test_a_logarithmic_feature_is_scaled_by_its_logarithm():
    feature = Feature("lactate", 0.1, 10.0, log=True)
    np.testing.assert_allclose(scaled(feature, [0.0, 0.1, 1.0, 10.0]), [-1, -1, 0, 1], atol=1e-12)


def test_other_units_with_other_bounds_give_the_same_scaled_values():
    celsius = np.linspace(30, 45, 17)
    fahrenheit = Feature("t", 91.4, 107.6)
    np.testing.assert_allclose(
        scaled(Feature("t", 33, 42), celsius), scaled(fahrenheit, celsius * 1.8 + 32), atol=1e-12
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("", 0, 1), "name"),
        (("x", 1, 1), "smaller one first"),
        (("x", 2, 1), "smaller one first"),
        (("x", float("nan"), 1), "finite"),
        (("x", 0, float("inf")), "finite"),
        (("x", "0", 1), "give a number"),
        (("x", -1e308, 1e308), "too far apart"),
        (("x", 0, 1, False, True), "above 0"),
    ],
)
def test_a_feature_without_usable_bounds_is_refused(arguments, problem):
    with pytest.raises(ValueError, match=problem):
        Feature(*arguments)


def test_edges_cut_a_dose_into_actions():
    dose = BinnedAction("dose", (0, 0.02, 0.05))
    assert dose.num_actions == 3
    assert dose.bin(np.array([-0.01, 0.0, 0.0199, 0.02, 0.05, 9.0, np.inf, np.nan])).tolist() == [
        -1, 0, 0, 1, 2, 2, 2, -1,
    ]  # fmt: skip
    assert dose.describe_actions() == ("dose 0 to below 0.02", "dose 0.02 to below 0.05", "dose 0.05 or more")


@pytest.mark.parametrize("edges", [(), (0,), (0, 0), (1, 0), (0, float("nan")), (0, float("inf"))])
def test_edges_that_make_no_actions_are_refused(edges):
    with pytest.raises(ValueError, match="edge"):
        BinnedAction("dose", edges)


def test_two_drugs_are_a_product_in_which_the_second_counts_fastest():
    drugs = BinnedAction("fluid", (0, 250, 750)), BinnedAction("pressor", (0, 0.05))
    parts = np.array([0, 0, 1, 2, 2]), np.array([0, 1, 0, 0, 1])
    numbers = product_actions(drugs, parts)
    assert numbers.tolist() == [0, 1, 2, 4, 5]
    assert (
        describe_product_actions(drugs)[5] == "fluid 750 or more, pressor 0.05 or more"
        and len(describe_product_actions(drugs)) == 6
    )


@pytest.mark.parametrize("values", ["ab", ["a"], ["a", "a"], ["a", ""], []])
def test_a_category_needs_two_different_values(values):
    with pytest.raises(ValueError, match="two different texts"):
        Category("ward", values)


def test_columns_are_named_once():
    assert check_measurements([Feature("a", 0, 1), Category("b", (1, 2))])[1].values == ("1", "2")
    for features in ([], [Feature("a", 0, 1), Category("a", ("x", "y"))], ["a"]):
        with pytest.raises(ValueError, match="`features`"):
            check_measurements(features)
