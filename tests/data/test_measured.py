"""Tables of measurements: vectors inside their bounds, doses as actions, and every fault named without its value."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pytest

import privrl
from privrl.data.episodes import Episodes
from privrl.data.schema.table_schema import TableError
from privrl.data.tables.parquet import read_parquet
from privrl.data.tables.part import Part
from privrl.data.tables.write import write_parquet
from privrl.learners.tabular.apvi import APVI
from privrl.mdp.measurements import ENDED, NOT_RECORDED, BinnedAction, Category, Feature
from privrl.mdp.types import Trajectory

SECRET = 918273.5
NAN = float("nan")
FEATURES = (
    Feature("map", 30, 130, missing=True),
    Feature("lactate", 0.1, 10, log=True),
    Category("ward", ("icu", "step-down"), missing=True),
)
DOSE = BinnedAction("dose", (0, 0.02, 0.05))
COLUMNS: dict[str, Any] = {"unit": "patient", "step": "hour", "reward": "alive", "terminated": "end", "horizon": 4}
OPTIONS: dict[str, Any] = COLUMNS | {"features": FEATURES, "action": DOSE}
STATES = np.array([[30, 1, 0], [NAN, 10, 1], [130, 0.1, NAN], [80, 2, 1], [75.5, 3, 0]])


def stays() -> dict[str, Any]:
    """Ann has three hours and then leaves; what happened to Bob after two is not known."""
    return {
        "patient": ["ann", "ann", "ann", "bob", "bob"],
        "hour": [0, 1, 2, 7, 8],
        "map": [10.0, None, 200.0, 80.0, 75.5],
        "lactate": [1, 99, 0, 2, 3],
        "ward": ["icu", "step-down", None, "step-down", "icu"],
        "dose": [0.0, 0.02, 9.0, 0.01, 0.05],
        "fluid": [0, 250, 0, 750, 0],
        "alive": [0.0, 0.0, 1.0, 0.0, 0.0],
        "end": [False, False, True, False, False],
    }


@pytest.mark.parametrize("batch_rows", [1, 2, 1000])
def test_states_are_vectors_inside_their_bounds(save: Any, batch_rows: int) -> None:
    data = read_parquet(save(stays()), **OPTIONS, batch_rows=batch_rows)
    (batch,) = data.batches(2)
    np.testing.assert_array_equal(batch.states[0, :3], STATES[:3])
    np.testing.assert_array_equal(batch.states[1, :2], STATES[3:])
    np.testing.assert_array_equal(batch.next_states[0, :2], STATES[1:3])
    assert (batch.next_states[0, 2] == ENDED).all() and (batch.next_states[1, 1] == NOT_RECORDED).all()
    assert (batch.next_states[1, 2:] == NOT_RECORDED).all() and not batch.states[1, 2:].any()
    assert batch.actions[0, :3].tolist() == [0, 1, 2] and batch.actions[1, :2].tolist() == [0, 2]
    assert batch.length.tolist() == [3, 2] and batch.states.dtype == np.float64
    assert data.features == FEATURES and data.num_actions == 3 and data.num_units == 2


def test_two_drugs_make_a_product_of_actions(save: Any) -> None:
    both = (BinnedAction("fluid", (0, 250, 750)), DOSE)
    data = read_parquet(save(stays()), **OPTIONS | {"action": both})
    assert data.num_actions == 9
    assert next(data.batches(2)).actions[0, :3].tolist() == [0, 4, 2]
    with pytest.raises(ValueError, match="`max_actions` is 8"):
        read_parquet(save(stays()), **OPTIONS | {"action": both}, max_actions=8)
    with pytest.raises(ValueError, match="`num_actions` is 4"):
        read_parquet(save(stays()), **OPTIONS | {"action": both}, num_actions=4)


def test_measurements_may_go_with_numbered_actions(save: Any) -> None:
    table = stays() | {"drug": [0, 1, 2, 0, 1]}
    data = read_parquet(save(table), **OPTIONS | {"action": "drug"}, num_actions=3)
    assert next(data.batches(2)).actions[0, :3].tolist() == [0, 1, 2]


def test_categories_may_be_numbers_truths_or_encoded(save: Any) -> None:
    for column, values in (
        (pa.array([3, 5, None, 5, 3]), ("3", "5")),
        (pa.array([True, False, None, False, True]), ("true", "false")),
        (pa.array(["icu", "step-down", None, "step-down", "icu"]).dictionary_encode(), ("icu", "step-down")),
    ):
        features = (*FEATURES[:2], Category("ward", values, missing=True))
        data = read_parquet(save(stays() | {"ward": column}), **OPTIONS | {"features": features})
        np.testing.assert_array_equal(next(data.batches(2)).states[0, :3, 2], [0, 1, NAN])


def test_a_value_outside_its_bounds_is_the_bound(save: Any) -> None:
    inside = stays() | {"map": [30.0, None, 130.0, 80.0, 75.5], "lactate": [1, 10, 0.1, 2, 3]}
    key = bytes(32)
    digest = read_parquet(save(stays()), **OPTIONS).digest(key)
    assert digest == read_parquet(save(inside, "b.parquet"), **OPTIONS, batch_rows=2).digest(key)
    other = stays() | {"map": [10.0, None, 200.0, 80.0, 75.25]}
    assert digest != read_parquet(save(other, "c.parquet"), **OPTIONS).digest(key)


def test_episodes_in_memory_are_those_of_the_table(save: Any, tmp_path: Path) -> None:
    table = read_parquet(save(stays()), **OPTIONS)
    batch = next(table.batches(2))
    memory = Episodes.from_trajectories(batch, features=FEATURES, num_actions=3)
    for field in ("states", "actions", "rewards", "next_states"):
        np.testing.assert_array_equal(getattr(next(memory.batches(2)), field), getattr(batch, field))
    write_parquet(tmp_path / "again.parquet", memory)
    columns = {"unit": "unit_id", "step": "step", "reward": "reward", "terminated": "terminated", "horizon": 4}
    again = read_parquet(tmp_path / "again.parquet", **columns, features=FEATURES, action="action", num_actions=3)
    for field in ("states", "actions", "rewards", "next_states"):
        np.testing.assert_array_equal(getattr(next(again.batches(2)), field), getattr(batch, field))


def test_parts_of_the_people_have_their_vectors(save: Any) -> None:
    whole = read_parquet(save(stays()), **OPTIONS)
    ann, bob = (Part(whole, np.array(chosen)) for chosen in ([True, False], [False, True]))
    np.testing.assert_array_equal(next(ann.batches(1)).states[0, :3], STATES[:3])
    np.testing.assert_array_equal(next(bob.batches(1)).states[0, :2], STATES[3:])
    assert ann.features == FEATURES and ann.digest(bytes(32)) != bob.digest(bytes(32))


@pytest.mark.parametrize("batch_rows", [1, 3, 1000])
def test_of_several_stays_some_are_used(save: Any, batch_rows: int) -> None:
    table = stays() | {"patient": ["ann"] * 5, "stay": [1, 1, 1, 2, 2]}
    options = OPTIONS | {"episode": "stay", "batch_rows": batch_rows}
    path = save(table)
    one, both = (read_parquet(path, **options, max_episodes_per_unit=most) for most in (1, 2))
    assert (one.check().num_episodes, one.check().num_left_out) == (1, 1)
    np.testing.assert_array_equal(next(both.batches(2)).states[0, :3], STATES[:3])


CASES: dict[str, tuple[str, int, Any, str]] = {
    "null": ("lactate", 3, None, "has no value"),
    "nan": ("lactate", 3, NAN, "has no value"),
    "infinite": ("lactate", 2, float("inf"), "infinite"),
    "infinite where it may be missing": ("map", 2, float("-inf"), "infinite"),
    "unknown category": ("ward", 1, "SECRET-ward", "none of the declared values"),
    "dose below": ("dose", 4, -SECRET, "below the first edge"),
    "dose null": ("dose", 4, None, "null"),
    "dose nan": ("dose", 4, NAN, "NaN"),
    "dose infinite": ("dose", 4, float("inf"), "infinite"),
    "reward null": ("alive", 4, None, "null"),
    "reward out of range": ("alive", 4, SECRET, "out of range"),
    "end null": ("end", 4, None, "null"),
    "step twice": ("hour", 4, 7, "twice"),
}


@pytest.mark.parametrize("batch_rows", [1, 1000])
@pytest.mark.parametrize("case", CASES)
def test_every_fault_is_named_and_placed(save: Any, case: str, batch_rows: int) -> None:
    column, row, value, words = CASES[case]
    table = stays()
    table[column] = [*table[column][:row], value, *table[column][row + 1 :]]
    with pytest.raises(TableError) as caught:
        read_parquet(save(table), **OPTIONS, batch_rows=batch_rows).check()
    message = str(caught.value)
    assert f"`{column}`" in message and f"row {row} of `stays.parquet`" in message and words in message
    assert "918273" not in message and "SECRET" not in message


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("map", ["low"] * 5),
        ("map", [True] * 5),
        ("dose", ["much"] * 5),
        ("ward", [0.5] * 5),
        ("lactate", pa.array([1] * 5, pa.timestamp("s", "Europe/Berlin"))),
    ],
)
def test_columns_of_other_types_are_refused_when_the_table_is_opened(save: Any, column: str, values: Any) -> None:
    with pytest.raises(TableError, match=f"`{column}` of `stays.parquet` holds"):
        read_parquet(save(stays() | {column: values}), **OPTIONS)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"state": "hour"}, "not both"),
        ({"features": ()}, "not both"),
        ({"next_state": "hour"}, "Leave out `next_state`"),
        ({"num_states": 5}, "`num_states`"),
        ({"features": (*FEATURES, Feature("dose", 0, 1))}, "declared twice"),
        ({"action": (DOSE, DOSE)}, "declared twice"),
        ({"features": (Feature("pulse", 30, 200),)}, r"no column `pulse` \(given as `features=`\)"),
        ({"action": BinnedAction("drug", (0, 1))}, r"no column `drug` \(given as `action=`\)"),
    ],
)
def test_declarations_that_do_not_go_together(save: Any, change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_parquet(save(stays()), **OPTIONS | change)


def test_learners_of_tables_say_what_to_do(save: Any) -> None:
    data = read_parquet(save(stays()), **OPTIONS)
    learner = APVI(num_states=3, num_actions=3, horizon=4)
    with pytest.raises(ValueError, match="dp-lap.*discretise"):
        privrl.fit(data, learner, privrl.Central(epsilon=1.0, delta=1e-6), key=jax.random.key(0))
    with pytest.raises(ValueError, match="dp-lap.*discretise"):
        data.transitions()
    with pytest.raises(ValueError, match="Declare columns"):
        Episodes.from_arrays([[0]], [[0]], [[0.0]], horizon=1, num_states=1, num_actions=1).with_sizes(None, 1)


STATES_OF = np.zeros((2, 3, 3)) + 1.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"states": STATES_OF[..., :2]}, r"`states` has shape \[2, 3, 2\]; .*\[episodes, steps, 3\]"),
        ({"actions": np.zeros((2, 2), int)}, r"`actions` has shape \[2, 2\] and `states` has \[2, 3, 3\]"),
        ({"next_states": np.zeros((2, 3))}, r"`next_states` has shape \[2, 3\] and `states` has \[2, 3, 3\]"),
        ({"states": np.full((2, 3, 3), NAN)}, r"\(lactate\)` has no value .* at episode 0, step 0"),
        ({"states": STATES_OF * [1, np.inf, 1]}, r"\(lactate\)` is infinite"),
        ({"states": STATES_OF * [1, 1, 0.5]}, r"\(ward\)` is not the position"),
        ({"next_states": STATES_OF * [np.inf, 1, 1]}, r"next_states\[\.\.\., 0\] \(map\)` is infinite"),
    ],
)
def test_arrays_of_vectors_are_checked(change: dict[str, Any], words: str) -> None:
    arrays = {"states": STATES_OF, "actions": np.zeros((2, 3), int), "rewards": np.zeros((2, 3))} | change
    with pytest.raises(TableError, match=words):
        Episodes.from_arrays(**arrays, horizon=3, num_actions=2, features=FEATURES)


def test_vectors_are_written_with_their_names_only(tmp_path: Path) -> None:
    batch = Trajectory(STATES_OF, np.zeros((2, 3), int), np.zeros((2, 3)), STATES_OF, np.full(2, 3))
    with pytest.raises(ValueError, match="declares 0 columns for vectors of 3 entries"):
        write_parquet(tmp_path / "never.parquet", batch)
    with pytest.raises(ValueError, match="Rename it"):
        write_parquet(tmp_path / "never.parquet", batch, features=(*FEATURES[:2], Feature("step", 0, 1)))
    assert not list(tmp_path.iterdir())
    assert write_parquet(tmp_path / "two.parquet", batch, features=FEATURES) == 6
