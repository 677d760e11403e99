"""How a CSV file is written, the lines that errors name, grids of numbered states, and the direction of a reward."""

import itertools
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import privrl
from privrl.data.prepare.grid import GridColumn, StateGrid
from privrl.data.prepare.preparation import Preparation
from privrl.data.prepare.prepare_table import prepare
from privrl.data.prepare.raw import Cells, RawTable, _Lines
from privrl.data.schema.outcomes import sounds_like_outcome, sounds_low
from privrl.data.schema.table_description import TableDescription
from privrl.data.schema.table_schema import TableError
from privrl.data.tables.draft import draft_from_names, draft_schema
from privrl.data.tables.faults import find_outside

HOW: dict[str, Any] = {
    "unit": "id",
    "time": "t",
    "every": 1,
    "columns": {"map": "mean"},
    "action": {"dose": "sum"},
    "reward": "alive",
    "horizon": 5,
}
CANARY = "zyxwvcanary"


def steps(folder: Path, records: str | bytes, **how: Any) -> dict[str, list[Any]]:
    content = records.encode() if isinstance(records, str) else records
    (folder / "raw.csv").write_bytes(content)
    prepare(folder / "raw.csv", folder / "t.parquet", Preparation(**{**HOW, **how}))
    return pq.read_table(folder / "t.parquet").to_pydict()


# ------------------------------------------------------------------------------------------------- how it is written

PLAIN = "id,t,map,dose,alive\nMüller,0,70.5,0,\nMüller,1,71.5,0.25,1\n"


@pytest.mark.parametrize(
    ("delimiter", "decimal", "encoding"),
    [(",", ".", "utf-8"), (";", ",", "cp1252"), ("\t", ".", "latin-1"), ("|", ",", "utf-8-sig")],
)
def test_the_same_records_in_other_forms(tmp_path: Path, delimiter: str, decimal: str, encoding: str) -> None:
    text = PLAIN.replace(",", delimiter).replace(".", decimal)
    how = {"delimiter": delimiter, "decimal": decimal, "encoding": encoding}
    assert steps(tmp_path, text.encode(encoding), **how) == steps(tmp_path, PLAIN)


@pytest.mark.parametrize("text", [(), ("ward",)])
def test_long_tables_have_the_same_decimal_comma(tmp_path: Path, text: tuple[str, ...]) -> None:
    rows = "a;0;map;70,5\na;1;dose;0,25\na;1;alive;1\n"
    how = {"name": "item", "value": "amount", "delimiter": ";", "decimal": ",", "text": text}
    how |= {"columns": {"map": "mean", "ward": "last"}} if text else {}
    found = steps(tmp_path, "id;t;item;amount\n" + rows, **how)
    assert (found["map"], found["dose"], found["alive"]) == ([70.5], [0.25], [1.0])
    with pytest.raises(TableError, match="`amount` does not hold a number at line 2 of"):
        steps(tmp_path, "id;t;item;amount\n" + rows.replace("70,5", "70.5"), **how)


@pytest.mark.parametrize(
    "wrong",
    [
        {"delimiter": ";;"},
        {"delimiter": '"'},
        {"decimal": ";"},
        {"decimal": ","},
        {"encoding": "utf-16"},
        {"encoding": "no-such-encoding"},
    ],
)
def test_forms_that_cannot_be_read_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=f"`{next(iter(wrong))}` is"):
        Preparation(**{**HOW, **wrong})


def test_a_byte_order_mark_is_not_part_of_a_name(tmp_path: Path) -> None:
    assert steps(tmp_path, PLAIN.encode("utf-8-sig")) == steps(tmp_path, PLAIN)


def test_another_form_than_declared_is_explained(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="`--delimiter`"):
        steps(tmp_path, PLAIN.replace(",", ";"))
    with pytest.raises(TableError, match="at line 2 of `raw.csv`.*`--decimal ,`"):
        steps(tmp_path, PLAIN.replace(",", ";").replace(".", ","), delimiter=";")
    with pytest.raises(TableError, match="`--encoding"):
        steps(tmp_path, PLAIN.encode("cp1252"))


# -------------------------------------------------------------------------------------------------------------- lines


@given(st.lists(st.sampled_from(["a", "bb", "", "\n", "\r\n", "\r"]), max_size=30), st.integers(1, 7))
@settings(deadline=None)
def test_lines_are_numbered_as_in_an_editor(tmp_path_factory: Any, pieces: list[str], block: int) -> None:
    path = tmp_path_factory.mktemp("lines") / "x"
    path.write_bytes("".join(pieces).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("privrl.data.prepare.raw._BLOCK_BYTES", block)
        found = _Lines.from_path(path)
    lines = "".join(pieces).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    filled = [number for number, line in enumerate(lines, 1) if line]
    assert found.count == len(filled)
    assert [found.line_of(number) for number in range(len(filled))] == filled


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_errors_name_the_line_of_the_file(tmp_path: Path, end: str) -> None:
    text = f"id,t,map,dose,alive\n\na,0,70,0,\n\n\na,1,{CANARY},0,1\n".replace("\n", end)
    with pytest.raises(TableError, match="`map` does not hold a number at line 6 of `raw.csv`") as caught:
        steps(tmp_path, text)
    assert CANARY not in str(caught.value)
    with pytest.raises(TableError, match="too many or too few cells at line 6 of `raw.csv`") as caught:
        steps(tmp_path, text.replace(CANARY, f"71,{CANARY}"))
    assert CANARY not in str(caught.value)
    with pytest.raises(TableError, match="`map` is infinite at line 6"):
        steps(tmp_path, text.replace(CANARY, "inf"))


# ------------------------------------------------------------------------------------------------- direction of reward


CANARY_DAYS = "918273"


def test_a_low_reward_is_inverted_under_another_name(tmp_path: Path) -> None:
    text = "id,t,map,dose,death\na,0,70,0,\na,1,71,1,1\nb,0,70,0,0\nb,1,70,0,\nb,2,70,0,\n"
    found = steps(tmp_path, text, reward="death", good="low")
    assert "death" not in found and found["not_death"] == [0.0, 0.0, 1.0]
    each = steps(tmp_path, text.replace(",0,\n", ",0,0.25\n"), reward="death", good="low", reward_each="mean")
    assert each["not_death"] == [0.0, 0.75, 0.75]
    long = text.replace(",0,0\n", f",0,{CANARY_DAYS}\n")
    with pytest.raises(TableError, match=r"`death` is outside \[0, 1\] at line 4 of `raw.csv`") as caught:
        steps(tmp_path, long, reward="death", good="low")
    assert CANARY_DAYS not in str(caught.value) and "Scale the column" in str(caught.value)
    paid = text.replace("b,1,70,0,\n", f"b,1,70,0,{CANARY_DAYS}\n").replace(",0,\n", ",0,0\n")
    with pytest.raises(TableError, match=r"outside \[0, 1\] in a window of the episode that begins at line 4"):
        steps(tmp_path, paid, reward="death", good="low", reward_each="mean")
    assert steps(tmp_path, long, reward="death")["death"][-1] == float(CANARY_DAYS)
    with pytest.raises(ValueError, match="`not_death` is named twice"):
        Preparation(**{**HOW, "reward": "death", "good": "low", "columns": {"not_death": "mean"}})


def test_names_that_sound_like_harm_or_like_an_outcome() -> None:
    for name in (
        "death",
        "hospital_death",
        "DIED",
        "mortality_30d",
        "icu_los",
        "cost",
        "readmission",
        "verstorben",
        "décès",
    ):
        assert sounds_low(name) and sounds_like_outcome(name)
    for name in ("not_survived", "non_survivor", "nicht_überlebt", "icu_nonsurvival"):
        assert sounds_low(name) and sounds_like_outcome(name)
    for name in ("survived", "alive", "reward", "no_of_survivors"):
        assert not sounds_low(name) and sounds_like_outcome(name)
    for name in ("map", "lactate", "glucose", "closed", "costal_angle", "Todesco", "mortise"):
        assert not sounds_low(name) and not sounds_like_outcome(name)
    assert not sounds_low("not_death") and sounds_like_outcome("not_death")


def test_a_schema_states_the_direction_of_a_reward_that_sounds_low() -> None:
    known = {"unit": "id", "step": "step", "state": "s", "action": ["a"], "horizon": 3, "num_states": 2}
    table = {**known, "num_actions": 2}
    TableDescription(**table, reward="survived").check_complete()
    TableDescription(**table, reward="death", good="high").check_complete()
    with pytest.raises(ValueError, match="State which values are good"):
        TableDescription(**table, reward="death").check_complete()
    with pytest.raises(ValueError, match="invert the column"):
        TableDescription(**table, reward="death", good="low").check_complete()
    with pytest.raises(ValueError, match='must be "high" or "low"'):
        TableDescription.read({"good": "yes"})
    report = {**table, "reward": "not_death", "good": "high"}
    TableDescription(unit="id").completed_by(report, "it").check_complete()
    with pytest.raises(ValueError, match="State which values are good"):  # `good` of the report is about `not_death`
        TableDescription(reward="death").completed_by(report, "it").check_complete()


# --------------------------------------------------------------------------------------------------------------- grids


def test_cells_of_a_grid_are_numbered_and_named_by_hand() -> None:
    grid = StateGrid(
        (GridColumn.parse("map:65,78", ()), GridColumn.parse("ward:icu,step:missing", ("ward",))), ends=True
    )
    assert grid.num_cells == 9 and grid.end_state == 9 and len(grid.names) == 10
    assert grid.names[0] == "map < 65, ward icu" and grid.names[5] == "65 <= map < 78, ward missing"
    assert grid.names[7] == "map >= 78, ward step" and grid.names[9] == "ended"
    number, none = GridColumn.parse("map:65,78", ()).cells(pa.array([64.9, 65.0, 77.9, 78.0, None]))
    assert number.tolist() == [0, 1, 1, 2, -1] and none.tolist() == [False] * 4 + [True]
    number, none = GridColumn.parse("ward:icu,step:missing", ("ward",)).cells(pa.array(["step", None, "other"]))
    assert number.tolist() == [1, 2, -1] and none.tolist() == [False, False, True]


@pytest.mark.parametrize("words", ["map", "map:", "map:78,65", "map:65,65", "map:a", "map:inf", ":65"])
def test_grids_that_are_refused(words: str) -> None:
    with pytest.raises(ValueError):
        GridColumn.parse(words, ())


RAW = """id,t,map,lactate,dose,alive,left
a,0,60,1,0,,
a,1,70,,1,,
a,2,80,5,0,1,1
b,0,70,3,0,,
b,1,90,3,0,0,0
"""
GRID: dict[str, Any] = {
    "columns": {"map": "mean", "lactate": "last"},
    "grid": (GridColumn.parse("map:65,78", ()), GridColumn.parse("lactate:2,4:missing", ())),
    "end": "left",
}


def test_a_grid_writes_states_next_states_and_the_end(tmp_path: Path) -> None:
    found = steps(tmp_path, RAW, **GRID)
    assert list(found) == ["id", "step", "state", "next_state", "dose", "alive", "terminated"]
    # map < 65 and lactate < 2: 0; 65 <= map < 78 and no lactate: 4 + 3; then the end, 12. b is cut off in (2, 1).
    assert found["state"] == [0, 7, 5] and found["next_state"] == [7, 12, 9]
    assert found["terminated"] == [False, True, False]
    at_end = steps(tmp_path, RAW, **GRID, state_at="end")
    assert at_end["state"] == [0, 7, 10, 5, 9] and at_end["next_state"] == [7, 10, 12, 9, None]
    carried = steps(tmp_path, RAW, **GRID, carry=1)
    assert carried["state"] == [0, 4, 5]
    # If a reward is paid at the end and no end is named, the last step ends the episode, also one that was cut off.
    paid_at_end = steps(tmp_path, RAW, **{**GRID, "end": None})
    assert paid_at_end["next_state"] == [7, 12, 12] and "terminated" not in paid_at_end
    assert steps(tmp_path, RAW, **{**GRID, "end": None}, horizon=1)["next_state"] == [12, 12]
    paid_each = RAW.replace(",,\n", ",0.5,\n")
    unknown_end = steps(tmp_path, paid_each, **{**GRID, "end": None}, reward_each="mean")
    assert unknown_end["next_state"] == [7, 10, 9]
    cut = steps(tmp_path, RAW, **GRID, horizon=1)
    assert cut["next_state"] == [7, 9] and cut["terminated"] == [False, False]


def test_a_grid_agrees_with_the_measurements_of_the_same_steps(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = ["id,t,map,lactate,dose,alive,left"]
    for person, hours in itertools.product(range(20), [6]):
        for hour in range(hours):
            last = hour == hours - 1
            ended = "" if not last else person % 2
            lactate = round(rng.uniform(0, 6), 1) if rng.random() < 0.5 else ""
            lines.append(f"p{person},{hour},{rng.integers(55, 95)},{lactate},0,{1 if last else ''},{ended}")
    text = "\n".join(lines) + "\n"
    plain = steps(tmp_path, text, **{**GRID, "grid": ()})
    found = steps(tmp_path, text, **GRID)
    grid = Preparation(**{**HOW, **GRID}).states
    assert grid is not None
    cells = {column.name: column.cells(pa.array(plain[column.name]))[0] for column in grid.columns}
    assert found["state"] == grid.number(cells).tolist()
    for i, (step, after) in enumerate(zip(found["step"], found["next_state"], strict=True)):
        if found["terminated"][i]:
            assert after == grid.end_state
        elif i + 1 < len(found["step"]) and found["step"][i + 1] == step + 1:
            assert after == found["state"][i + 1]


def test_a_step_has_exactly_one_logged_probability(tmp_path: Path) -> None:
    logged = RAW.replace("left", "p").replace(",,\n", ",,.5\n")
    logged = logged.replace("a,0,60,1,0,,.5", "a,0,60,1,0,,").replace(",1,1\n", ",1,.2\n").replace(",0,0\n", ",0,1\n")
    how = {"columns": {"map": "mean"}, "propensity": "p"}
    found = steps(tmp_path, logged, **how)  # the first window gives a state and no step
    assert found["p"] == [0.5, 0.2, 1.0]
    assert tomllib.loads(draft_schema(tmp_path / "t.parquet"))["propensity"] == "p"
    for wrong in (logged.replace("a,1,70,,1,,.5", "a,1,70,,1,,"), logged + "b,1.5,90,3,0,0,.5\n"):
        with pytest.raises(TableError, match="`p` does not have exactly one value in every window of the episode"):
            steps(tmp_path, wrong, **how)


def test_groups_are_carried_and_second_outcomes_are_summed(tmp_path: Path) -> None:
    """The first value of an episode counts for all its steps, and costs of the window of an action add up."""
    raw = """id,t,map,dose,alive,sex,cost
a,0,60,1,,,7
a,1,70,0,,f,5
a,1.5,70,0,,m,.5
a,2,80,0,1,,
b,0,70,0,,,3
b,1,90,0,0,,4
"""
    found = steps(tmp_path, raw, by="sex", outcome="cost")
    assert found["id"] == ["a", "a", "b"] and found["sex"] == ["f", "f", None]
    assert found["cost"] == [5.5, None, 4.0]  # the first window gives a state and no step
    drafted = tomllib.loads(draft_schema(tmp_path / "t.parquet"))
    assert drafted["by"] == "sex:FILL-IN,FILL-IN" and drafted["outcome"] == "cost:FILL-IN"
    assert drafted["feature"] == ["map:FILL-IN..FILL-IN"] and "category" not in drafted
    with pytest.raises(ValueError, match="`cost` is named twice"):
        steps(tmp_path, raw, by="cost", outcome="cost")
    with pytest.raises(TableError, match="`sex`") as caught:
        steps(tmp_path, raw, outcome="sex")
    assert "'f'" not in str(caught.value)
    with pytest.raises(ValueError, match="long table has no column of groups"):
        Preparation(**HOW, name="what", value="value", by="sex")


@pytest.mark.parametrize("state_at", ["start", "end"])
def test_states_of_a_person_depend_on_that_person_alone(tmp_path: Path, state_at: str) -> None:
    mine = "a,0,60,1,0,,\na,1,70,,1,1,0\n"
    found = []
    for other in ("b,0,60,1,0,1,0\n", "b,0,90,5,0,1,1\n", "b,0,90,5,0,,\nb,1,70,3,0,0,1\n"):
        made = steps(tmp_path, RAW.splitlines()[0] + "\n" + mine + other, **GRID, state_at=state_at)
        found.append([row for row in zip(*made.values(), strict=True) if row[0] == "a"])
    assert found[0] == found[1] == found[2]


def test_a_missing_value_without_a_cell_is_refused_by_its_episode(tmp_path: Path) -> None:
    strict = (GridColumn.parse("map:65,78", ()), GridColumn.parse("lactate:2,4", ()))
    with pytest.raises(TableError, match="`lactate` has no value in a window of the episode that begins at line 2 of"):
        steps(tmp_path, RAW, **{**GRID, "grid": strict})
    text = (
        RAW.replace("lactate", "ward").replace(",5,", ",icu,").replace(",3,", f",{CANARY},").replace("60,1", "60,icu")
    )
    ward = (GRID["grid"][0], GridColumn.parse("ward:icu:missing", ("ward",)))
    how = {**GRID, "columns": {"map": "mean", "ward": "last"}, "text": ("ward",), "grid": ward}
    with pytest.raises(
        TableError, match="`ward` has a value that is not in its grid in the episode that begins at line 5"
    ) as caught:
        steps(tmp_path, text, **how)
    assert CANARY not in str(caught.value)
    with pytest.raises(ValueError, match="every measurement once, and measurements only. `lactate`"):
        Preparation(**{**HOW, **GRID, "grid": GRID["grid"][:1]})


# -------------------------------------------------------------------------------------------------------------- drafts


def test_a_draft_knows_what_prepare_was_told(tmp_path: Path) -> None:
    steps(tmp_path, RAW, **GRID)
    drafted = tomllib.loads(draft_schema(tmp_path / "t.parquet"))
    fill_in = drafted.pop("action_edges")
    assert fill_in == "FILL-IN" and drafted == {
        "unit": "id",
        "step": "step",
        "reward": "alive",
        "good": "high",
        "rewards_at_end": True,
        "terminated": "terminated",
        "state": "state",
        "next_state": "next_state",
        "num_states": 13,
        "terminal": [12],
        "horizon": 5,
        "action": "dose",
    }
    TableDescription.read({**drafted, "action_edges": "0,1"}).check_complete()


def test_settings_in_a_file_are_those_of_the_options_alone(tmp_path: Path) -> None:
    steps(tmp_path, RAW, **GRID)
    before = pq.read_schema(tmp_path / "t.parquet").metadata[b"privrl"]
    steps(tmp_path, "id,t,map,lactate,dose,alive,left\nc,0,1,1,1,1,0\n", **GRID)
    assert pq.read_schema(tmp_path / "t.parquet").metadata[b"privrl"] == before
    assert json.loads(before)["num_states"] == 13


def test_an_outcome_is_not_drafted_as_a_feature(tmp_path: Path) -> None:
    columns = {"patient_id": [1], "step": [0], "map": [70.0], "hospital_death": [0], "alive": [1], "dose": [0.0]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    text = draft_schema(tmp_path / "t.parquet")
    drafted = tomllib.loads(text)
    assert drafted["feature"] == ["map:FILL-IN..FILL-IN"] and drafted["reward"] == "alive"
    assert drafted["good"] == "FILL-IN" and '# "hospital_death": sounds like an outcome' in text


def test_a_draft_from_the_first_line_of_a_csv_file() -> None:
    drafted = tomllib.loads(draft_from_names(["patient_id", "hour", "map", "died", "dose"], "raw.csv"))
    assert (drafted["unit"], drafted["step"], drafted["reward"]) == ("patient_id", "hour", "FILL-IN")
    assert drafted["feature"] == ["map:FILL-IN..FILL-IN"]
    for record in (
        ["17", CANARY],
        ["", CANARY],
        [f"patient;{CANARY}"],
        ["2026-05-01 00:10:00", CANARY],
        [CANARY, CANARY],
    ):
        with pytest.raises(TableError, match="must name the columns") as caught:
            draft_from_names(record, "raw.csv")
        assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(
            (name, "a time")
            for name in ("charttime", "chartTime", "start_date", "timestamp", "Zeit", "time_hours", "day")
        ),
        *((name, "an action or a dose") for name in ("norepi_dose", "Dose (mg)", "actionB", "treatment_given", "drug")),
        *((name, "an action or a dose") for name in ("norepi_rate", "heparin_iu", "propofol_mg", "insulin_rate")),
        *((name, "an outcome") for name in ("status_28d", "qaly", "nebenwirkung", "vital_status")),
        *(
            (name, "the probability of an action")
            for name in ("propensity_score", "action_prob", "p", "p_action", "pi_b", "p_treat")
        ),
    ],
)
def test_times_doses_and_propensities_are_not_drafted_as_features(tmp_path: Path, name: str, kind: str) -> None:
    """Before, they were features of the state, with which a policy would have decided."""
    columns = {"pid": [1], "hour": [0], "map": [70.0], "action": [1], name: [1]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    for text in (draft_from_names(list(columns), "raw.csv"), draft_schema(tmp_path / "t.parquet")):
        assert tomllib.loads(text)["feature"] == ["map:FILL-IN..FILL-IN"]
        assert f'# "{name}": sounds like {kind}' in text


def test_measurements_with_similar_names_are_drafted_as_features() -> None:
    names = [
        "last_dose",
        "drug_level",
        "heart_rate",
        "update",
        "ph",
        "sepsis_probability",
        "pip",
        "hour_of_day",
        "stamp",
        "respiratory_rate",
        "glucose_mg",
        "insulin",
        "potassium",
        "fluid_balance",
        "vancomycin_level",
        "status",
        "falls",
        "lymphocyte_number",
    ]
    drafted = tomllib.loads(draft_from_names(["pid", "hour", "action", *names], "raw.csv"))
    assert drafted["feature"] == [f"{name}:FILL-IN..FILL-IN" for name in names]


def test_a_reward_outside_its_range_names_a_remedy_that_the_command_line_has(tmp_path: Path) -> None:
    """Before, it named `reward_range`, which is not an option."""
    columns: dict[str, list[Any]] = {"pid": [1, 2], "step": [0, 0], "state": [0, 1], "action": [0, 1]}
    pq.write_table(pa.table({**columns, "reward": [1.0, -15.25], "end": [True, True]}), tmp_path / "t.parquet")
    given = {name: name for name in ("step", "state", "action", "reward")} | {
        "unit": "pid",
        "horizon": 1,
        "num_states": 2,
        "num_actions": 2,
        "terminated": "end",
    }
    given["good"] = "high"
    with pytest.raises(TableError, match=r"Rewards must lie in \[0, 1\]. Rescale the column") as caught:
        privrl.fit(tmp_path / "t.parquet", "dp-apvi", epsilon=1, delta=1e-6, schema=given)
    assert "(reward - smallest) / (largest - smallest)." in str(caught.value)
    assert "reward_range" not in str(caught.value) and "15.25" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["id", "ID", "patientID", "PatientId", "case_id", "uuid", "mrn", "pat_nr", "pat", "PatNr", "case_number"]
)
def test_an_identifier_is_the_unit_or_left_out_and_never_a_feature(tmp_path: Path, name: str) -> None:
    pq.write_table(pa.table({name: [1], "hour": [0], "map": [70.0], "humid": [0.5]}), tmp_path / "t.parquet")
    for text in (draft_from_names([name, "hour", "map", "humid"], "raw.csv"), draft_schema(tmp_path / "t.parquet")):
        drafted = tomllib.loads(text)
        assert drafted["feature"] == ["map:FILL-IN..FILL-IN", "humid:FILL-IN..FILL-IN"]
        assert drafted["unit"] == name or f'# "{name}": sounds like an identifier' in text


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n"])
@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (["a,0,1,x", 'b,0,1,"open', "c,0,1,x"], 3),
        (["a,0,1,x", 'b,"0,1,x', "c,0,1,x"], 3),
        (['a,0,1,"two\nlines"', "b,bad,1,x"], 2),
        (['a,0,1,"one ""cell"""', 'b,0,1,5"', 'c,0,1,"two\nlines"', "d,0,1"], 4),
    ],
)
def test_the_line_of_an_open_quotation_mark_is_that_of_the_file(
    tmp_path: Path, lines: list[str], line: int, end: str
) -> None:
    (tmp_path / "raw.csv").write_bytes(end.join(["id,t,dose,note", *lines]).encode())
    cells: dict[str, Cells] = {"id": "text", "t": "number", "note": "text"}
    table = RawTable(tmp_path / "raw.csv", {"id": "id", "t": "time", "note": "text"}, cells)
    number = 1 + (line - 1) * (2 if end == "\n\n" else 1)
    with pytest.raises(TableError, match=rf"quotation mark that is not closed on its line at line {number}\."):
        list(table.batches())


def test_the_first_row_outside_each_bound_is_named_and_not_its_value(tmp_path: Path) -> None:
    columns = {
        "id": list("abcd"),
        "step": [0] * 4,
        "pao2": [80.0, 10.7, None, 918273645.0],
        "dose": [0.0] * 4,
        "r": [1.0] * 4,
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    declared = {"unit": "id", "step": "step", "action": "dose", "action_edges": "0,1", "reward": "r", "horizon": 1}
    schema = TableDescription.read({**declared, "feature": ["pao2:20..600:missing"]})
    found = find_outside(tmp_path / "t.parquet", schema.columns)
    assert len(found) == 2 and "`pao2` is below 20 at row 1 of" in found[0] and "above 600 at row 3" in found[1]
    assert not any("10.7" in one or "918273645" in one for one in found)
    wide = TableDescription.read({**declared, "feature": ["pao2:1..1e9:missing"]})
    assert find_outside(tmp_path / "t.parquet", wide.columns) == []


# ---------------------------------------------------------------------------------------------- cells that are wrong


@pytest.mark.parametrize(
    ("form", "right", "wrong"),
    [
        ("%d.%m.%Y %H:%M", ["29.02.2024 10:00", "1.3.2024 9:05", "2024-03-02 10:00"], "31.02.2024 10:00"),
        ("%d.%m.%Y", ["29.02.2024", "01.3.2024", " 2.03.2024"], "30.2.2024"),
        ("%Y%m%d", ["20240229", "20240301", "20240302"], "20240231"),
        ("%d %b %Y", ["29 Feb 2024", "1 mar 2024", "02 MAR 2024"], "31 Feb 2024"),
        (
            "%m/%d/%Y %I:%M %p",
            ["02/29/2024 01:05 PM", "3/1/2024 1:05 PM", "03/02/2024 11:05 pm"],
            "02/30/2024 01:05 PM",
        ),
        ("%d.%m.%Y %H:%M:%S", ["29.02.2024 10:00:00", "", "01.03.2024 23:59:59"], "01.03.2024 23:59:60"),
        ("%Y-%m-%d %H:%M", ["2024-02-29 10:00", "2024-03-01 09:00", "2024-3-2 9:00"], "2024-02-31 10:00"),
    ],
)
def test_dates_that_do_not_exist_are_refused_by_their_line(
    tmp_path: Path, form: str, right: list[str], wrong: str
) -> None:
    """Before, 31.02. became a day in March."""
    kept = [time for time in right if time]
    how = {"every": "1d", "time_format": form, "state_at": "end"}

    def table(times: list[str]) -> str:
        return "id,t,map,dose,alive\n" + "".join(f"a,{time},7{i},0,1\n" for i, time in enumerate(times))

    assert steps(tmp_path, table(kept), **how)["step"][0] == 0
    with pytest.raises(TableError, match=f"`t` holds a date or a time that does not exist at line {len(kept) + 2} of"):
        steps(tmp_path, table([*kept, wrong]), **how)


def test_impossible_dates_are_found_in_every_block_of_a_file(tmp_path: Path) -> None:
    rows = [f"p{i},{i % 28 + 1:02}.02.2024,{i}.5,0,1" for i in range(80_000)]
    text = "\n".join(["id,t,map,dose,alive", *rows]) + "\n"
    how = {"every": "1d", "time_format": "%d.%m.%Y", "state_at": "end"}
    assert len(text) > 2**20 and len(steps(tmp_path, text, **how)["step"]) == 80_000
    rows[70_000] = rows[70_000].replace(rows[70_000].split(",")[1], "30.02.2024")
    with pytest.raises(TableError, match="does not exist at line 70002 of") as caught:
        steps(tmp_path, "\n".join(["id,t,map,dose,alive", *rows]) + "\n", **how)
    assert "30.02" not in str(caught.value)


def test_times_with_a_zone_have_the_same_dates(tmp_path: Path) -> None:
    text = "id,t,map,dose,alive\na,29.02.2024 23:30+0200,70,0,\na,01.03.2024 01:30+0200,71,0,1\n"
    how = {"every": "1h", "time_format": "%d.%m.%Y %H:%M%z", "zoned": True}
    assert steps(tmp_path, text, **how)["step"] == [0, 1]
    with pytest.raises(TableError, match="does not exist at line 3 of"):
        steps(tmp_path, text.replace("01.03.", "30.02."), **how)


@pytest.mark.parametrize("wrong", ["1.37", "0", "-0.5"])
def test_a_probability_outside_its_range_is_refused_by_its_line(tmp_path: Path, wrong: str) -> None:
    """Before, it was written, and a later error named a row of the written table."""
    text = "id,t,map,dose,alive,p\na,0,70,0,,.5\n\na,1,71,0,,1.0\na,2,72,0,1,WRONG\n"
    how = {"propensity": "p", "state_at": "end"}
    assert steps(tmp_path, text.replace("WRONG", ".2"), **how)["p"] == [0.5, 1.0, 0.2]
    with pytest.raises(TableError, match=r"`p` is outside \(0, 1\] at line 5 of .* or leave out the prop") as caught:
        steps(tmp_path, text.replace("WRONG", wrong), **how)
    assert wrong == "0" or wrong not in str(caught.value)


@pytest.mark.parametrize("how", ["last", "first", "mean"])
def test_infinite_measurements_are_refused_however_they_are_combined(tmp_path: Path, how: str) -> None:
    """Before, `last` and `first` copied them, and a later error named a row of the written table."""
    text = "id,t,map,dose,alive\na,0,70,0,\na,1,-inf,0,1\n"
    with pytest.raises(TableError, match="`map` is infinite at line 3 of"):
        steps(tmp_path, text, columns={"map": how})


def test_a_reward_that_sounds_low_and_is_declared_high_is_warned_of() -> None:
    assert not Preparation(**HOW).warnings and not Preparation(**{**HOW, "reward": "tod", "good": "low"}).warnings
    (warning,) = Preparation(**{**HOW, "reward": "tod", "good": "high"}).warnings
    assert "`tod` sounds like an outcome that should be low" in warning and "`--good low`" in warning
    both = Preparation(**{**HOW, "reward": "tod", "state_at": "end"}).warnings
    assert len(both) == 2 and "`--state-at start`" in both[0]
