"""The table of changes by a policy on measurements: what is done today, what is advised, and ordinary numbers."""

import jax.numpy as jnp
import numpy as np
import pytest
from test_report_measured import policy

from privrl.mdp.assisted_measured import AssistedMeasuredPolicy, count_cells
from privrl.mdp.measurements import Category, Feature
from privrl.reports.change_section import _describe_change, _table_by_measurement
from privrl.reports.display_names import Names
from privrl.reports.rendering import format_measurement

DOSES = Names(actions=("no dose", "low", "high"))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1860.0, "1,860"),
        (1863.2, "1,860"),
        (4.754, "4.75"),
        (0.0312, "0.0312"),
        (-12.34, "-12.3"),
        (0, "0"),
        (5, "5.00"),
    ],
)
def test_measurements_are_written_as_ordinary_numbers(value: float, words: str) -> None:
    """Before, an NT-proBNP was "1.86e+03"."""
    assert format_measurement(value) == words


def test_changes_on_measurements_say_what_changes_into_what() -> None:
    """Before, "potassium 4.75 to 5.07: 7.2 %" said neither what is done today nor what is advised."""
    columns = (Feature("potassium", 3, 6), Feature("nt-probnp", 100, 35_000, log=True), Category("sex", ("f", "m")))
    advice = policy(columns, 3)
    assisted = AssistedMeasuredPolicy(advice, jnp.zeros(advice.features.dim), jnp.full(count_cells(3), 0.3), horizon=4)
    table = _table_by_measurement(assisted, DOSES)
    assert list(table.columns) == ["column", "values", "today → advice", "changes"]
    changes = {row[2] for row in table.rows}
    assert changes and all(set(one.split(" → ")) <= {*DOSES.actions} for one in changes)
    assert not any("e+" in row[1] for row in table.rows)
    assert all(before != after for before, after in (one.split(" → ") for one in changes))


def test_the_most_likely_change_is_shown() -> None:
    """Three situations, in which the advice is low, high and high."""
    advice = np.array([1, 2, 2])
    replaced = np.array([[0.3, 0.0, 0.1], [0.1, 0.5, 0.0], [0.4, 0.2, 0.0]])
    assert _describe_change(replaced, advice, np.array([0.3, 0.1, 0.0]), DOSES) == "no dose → low"
    assert _describe_change(replaced, advice, np.array([0.1, 0.3, 0.0]), DOSES) == "low → high"
    assert _describe_change(replaced, advice, np.array([0.1, 0.1, 0.3]), DOSES) == "no dose → high"
    assert _describe_change(replaced, advice, np.zeros(3), DOSES) == "no change"
