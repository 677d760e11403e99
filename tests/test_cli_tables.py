"""From raw records to a table that a schema file declares: `prepare`, `schema`, `lookalike`, and what `fit` refuses."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privrl
from privrl.cli import main
from privrl.data.schema.table_description import TableDescription
from privrl.data.tables.parquet import read_parquet

SCHEMA = """
unit = "patient"
step = "step"
reward = "alive"
terminated = "terminated"
horizon = 6
rewards_at_end = true
action = ["fluid", "pressor"]
action_edges = ["0,250,750", "0,0.05"]
feature = ["map:30..130:missing", "lactate:0.1..10:missing:log"]
category = ["ward:icu,step-down"]
"""
RAW = """patient,at,map,lactate,ward,fluid,pressor,alive
b,2026-05-01 00:10:00,70,,icu,100,0,
b,2026-05-01 04:00:00,64,2.5,icu,250,,
b,2026-05-01 09:00:00,,3.5,step-down,,0.1,1
a,2026-05-01 00:00:00,80,1,icu,,,0
"""
PREPARE = ("--unit", "patient", "--time", "at", "--every", "4h", "--mean", "map", "--last", "lactate", "--last", "ward")
PREPARE = (*PREPARE, "--text", "ward")
PREPARE = (
    *PREPARE,
    "--action",
    "fluid",
    "--action",
    "pressor:max",
    "--reward",
    "alive",
    "--good",
    "high",
    "--horizon",
    "6",
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stays.toml").write_text(SCHEMA)
    (tmp_path / "raw.csv").write_text(RAW)
    return tmp_path


def call(capfd: Any, *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capfd.readouterr()
    return code, out, " ".join(err.split())


def test_raw_records_become_steps_and_no_budget_is_spent(here: Path, capfd: Any) -> None:
    code, out, err = call(capfd, "prepare", "raw.csv", "stays.parquet", *PREPARE)
    assert code == 0 and "no budget was spent" in out and "Warning" not in err
    rows = pq.read_table(here / "stays.parquet").to_pylist()
    assert [(row["patient"], row["step"]) for row in rows] == [("a", 0), ("b", 0), ("b", 1)]
    assert [row["map"] for row in rows] == [80, 67, None] and [row["fluid"] for row in rows] == [0, 0, 0]
    assert [row["pressor"] for row in rows] == [0, 0, 0.1] and [row["alive"] for row in rows] == [0, 0, 1]


def test_an_action_beside_its_own_effect_is_warned_of(here: Path, capfd: Any) -> None:
    code, out, err = call(capfd, "prepare", "raw.csv", "stays.parquet", *PREPARE, "--state-at", "end", "--json")
    assert code == 0 and "Warning" in err and "effect of its own action" in err
    assert json.loads(out)["state_at"] == "end" and json.loads(out)["warnings"]


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_what_is_printed_depends_on_nobodys_records(here: Path, capfd: Any, form: tuple[str, ...]) -> None:
    words = ("prepare", "raw.csv", "stays.parquet", *PREPARE, *form, "--overwrite")
    printed = call(capfd, *words)
    longer = RAW.replace("2026-05-01 09:00:00", "2026-05-01 19:00:00")
    assert longer != RAW
    (here / "raw.csv").write_text(longer)
    assert call(capfd, *words) == printed and printed[0] == 0


def test_the_time_of_an_end_is_declared(here: Path, capfd: Any) -> None:
    rows = [line.split(",") for line in RAW.splitlines()]
    ends = ["out", *["2026-05-01T20:00:00+02:00"] * 4]
    zoned = [[row[0], row[1] if i == 0 else f"{row[1]}Z", *row[2:], ends[i]] for i, row in enumerate(rows)]
    (here / "raw.csv").write_text("\n".join(map(",".join, zoned)) + "\n")
    arguments = ("prepare", "raw.csv", "stays.parquet", *PREPARE)
    code, _, err = call(capfd, *arguments, "--end", "out:time")
    assert code == 2 and "a time without a time zone" in err and "--zoned" in err
    code, _, err = call(capfd, *arguments, "--end", "out", "--zoned")
    assert code == 2 and "true or false" in err and "--end COL:time" in err
    assert call(capfd, *arguments, "--end", "out:time", "--zoned")[0] == 0
    steps = pq.read_table(here / "stays.parquet").to_pydict()
    assert steps["patient"] == ["a"] * 4 + ["b"] * 4 and steps["terminated"] == [False, False, False, True] * 2


def test_prepare_refuses_what_it_cannot_do(here: Path, capfd: Any) -> None:
    code, _, err = call(capfd, "prepare", "raw.csv", "stays.parquet", *PREPARE, "--max", "map")
    assert code == 2 and "two ways" in err
    (here / "raw.csv").write_text(RAW.replace("64", "zyxwvcanary"))
    code, out, err = call(capfd, "prepare", "raw.csv", "stays.parquet", *PREPARE)
    assert code == 2 and "`map` does not hold a number at line 3" in err and "canary" not in out + err


LONG = """patient,at,item,value
b,2026-05-01 00:10:00,220052,70
b,2026-05-01 00:10:00,ward,icu
b,2026-05-01 00:20:00,unasked,zyxwv
b,2026-05-01 04:30:00,fluid,250
b,2026-05-01 09:00:00,alive,1
"""


def test_a_long_table_has_names_and_values(here: Path, capfd: Any) -> None:
    (here / "raw.csv").write_text(LONG)
    words = ("prepare", "raw.csv", "stays.parquet", "--unit", "patient", "--time", "at", "--every", "4h")
    words += ("--name", "item", "--value", "value", "--mean", "map", "--last", "ward", "--text", "ward")
    words += ("--action", "fluid", "--reward", "alive", "--good", "high", "--horizon", "6")
    code, _, err = call(capfd, *words, "--item", "220052")
    assert code == 2 and "write NAME=ITEM" in err
    code, out, _ = call(capfd, *words, "--item", "map=220052")
    assert code == 0 and "no budget was spent" in out
    rows = pq.read_table(here / "stays.parquet").to_pylist()
    assert [(row["step"], row["map"], row["ward"], row["fluid"], row["alive"]) for row in rows] == [
        (0, 70.0, "icu", 250.0, 0.0),
        (1, None, None, 0.0, 1.0),
    ]


def test_a_draft_is_made_of_names_and_types_alone(here: Path, capfd: Any) -> None:
    names = {"patient_id": ["canary"], "hour": [1], "map": [918273.0], "ward": ["canary"], "dose": [918273.0]}
    columns = names | {"alive": [918273], "at": pa.array([918273], pa.timestamp("s"))}
    pq.write_table(pa.table(columns), here / "stays.parquet")
    code, out, _ = call(capfd, "schema", "init", "stays.parquet")
    assert code == 0 and "canary" not in out and "918273" not in out
    assert 'unit = "patient_id"' in out and '"map:FILL-IN..FILL-IN"' in out and '"ward:FILL-IN,FILL-IN"' in out
    assert call(capfd, "schema", "init", "stays.parquet", "--out", "draft.toml")[0] == 0
    code, _, err = call(capfd, "schema", "check", "draft.toml", "stays.parquet")
    assert code == 2 and "is still FILL-IN" in err
    assert call(capfd, "schema", "init", "stays.parquet", "--out", "draft.toml")[0] == 2  # never over another file


def test_a_look_alike_has_the_shape_that_was_declared(here: Path, capfd: Any) -> None:
    code, out, _ = call(capfd, "lookalike", "stays.toml", "--people", "5000", "--out", "fake.parquet", "--seed", "1")
    assert code == 0 and "no data were read" in out
    assert call(capfd, "schema", "check", "stays.toml", "fake.parquet")[0] == 0
    options = TableDescription.read(here / "stays.toml")
    data = read_parquet(here / "fake.parquet", **options.columns)
    assert data.num_units == 5000 and data.num_actions == 6
    batch = next(data.batches(5000))
    assert set(batch.actions[:, 0].tolist()) == set(range(6)) and set(batch.rewards.ravel().tolist()) == {0.0, 1.0}
    before = (here / "fake.parquet").read_bytes()
    call(capfd, "lookalike", "stays.toml", "--people", "5000", "--out", "fake.parquet", "--seed", "1")
    assert before == (here / "fake.parquet").read_bytes()


def test_a_look_alike_of_numbered_states(here: Path, capfd: Any) -> None:
    numbered = 'unit="u"\nepisode="e"\nstep="t"\nstate="s"\nnext_state="n"\naction="a"\nreward="r"\nhorizon=5\n'
    (here / "s.toml").write_text(numbered + "num_states=7\nnum_actions=3\nmax_episodes_per_unit=2\nterminal=[6]\n")
    assert call(capfd, "lookalike", "s.toml", "--people", "50", "--out", "fake.parquet")[0] == 0
    assert call(capfd, "schema", "check", "s.toml", "fake.parquet") == (0, "`fake.parquet` is as `s.toml` says.\n", "")


def test_what_would_be_refused_is_said_without_values(here: Path, capfd: Any) -> None:
    call(capfd, "lookalike", "stays.toml", "--people", "20", "--out", "fake.parquet")
    table = pq.read_table(here / "fake.parquet").to_pydict()
    table["lactate"][9] = float("inf")
    table["ward"][11] = "zyxwvcanary"
    pq.write_table(pa.table(table), here / "fake.parquet")
    code, out, _ = call(capfd, "schema", "check", "stays.toml", "fake.parquet", "--json")
    found = json.loads(out)["refused"]
    assert code == 2 and len(found) == 2 and "canary" not in out
    assert (
        "`lactate` is infinite at row 9" in found[0]
        and "`ward` holds none of the declared values at row 11" in found[1]
    )


FIT = ("fit", "fake.parquet", "--recipe", "dp-tdfp", "--epsilon", "1", "--delta", "1e-6", "--out", "policy")
STEPS = ("--unit", "patient", "--step", "step", "--reward", "alive", "--horizon", "6")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*FIT, "--schema", "stays.toml"), "dp-lap"),
        ((*FIT, "--schema", "stays.toml", "--state", "ward"), "`--state` describes numbered states"),
        ((*FIT, "--schema", "stays.toml", "--num-states", "4"), "`--num-states` describes numbered states"),
        ((*FIT, "--schema", "stays.toml", "--num-actions", "4"), "`--num-actions` follows from `--action-edges`"),
        ((*FIT, *STEPS, "--state", "s", "--num-states", "4"), "`--action`, `--num-actions`"),
        ((*FIT, *STEPS, "--state", "s", "--product", "a*b"), "`--product` describes measurements"),
        ((*FIT, *STEPS, "--feature", "map:30..130", "--action", "a", "--action", "b"), "once for each"),
        ((*FIT, *STEPS, "--feature", "map", "--action", "dose", "--action-edges", "0,1"), "dp-lap"),
    ],
)
def test_options_that_do_not_go_together(here: Path, capfd: Any, arguments: tuple[str, ...], words: str) -> None:
    code, _, err = call(capfd, *arguments)
    assert code == 2 and words in err and not (here / "policy").exists()


def test_a_policy_of_measurements_from_a_table(here: Path, capfd: Any) -> None:
    call(capfd, "lookalike", "stays.toml", "--people", "600", "--out", "fake.parquet", "--seed", "1")
    lap = [{"dp-tdfp": "dp-lap"}.get(word, word) for word in FIT]
    code, _, err = call(capfd, *lap, *STEPS, "--state", "ward", "--num-states", "2", "--action", "fluid")
    assert code == 2 and "learns from measurements" in err
    code, _, err = call(capfd, *lap, "--schema", "stays.toml", "--product", "map*ward")
    assert code == 2 and "`products` has map*ward" in err
    code, out, _ = call(capfd, *lap, "--schema", "stays.toml", "--json", "--products", "none")
    assert code == 0 and "map:30..130:missing" in out and json.loads(out)["epsilon"] <= 1.0
    assert json.loads(out)["certificate"]["bounds"]["features"] == 1 + 2 * 2 + 2 + 2  # squares, missing, categories
    result = privrl.Result.load(here / "policy")
    assert result.report["names"]["actions"][1] == "fluid 0 to below 250, pressor 0.05 or more"
    policy = result.policy
    assert policy({"map": 60, "lactate": None, "ward": "icu"}) in range(6)
    assert call(capfd, "certify", "policy")[0] == 0


@pytest.mark.slow
def test_a_policy_of_measurements_is_evaluated_on_a_table(here: Path, capfd: Any) -> None:
    """`test_evaluate_measured.py` evaluates policies of measurements without the command line."""
    call(capfd, "lookalike", "stays.toml", "--people", "600", "--out", "fake.parquet", "--seed", "1")
    lap = [{"dp-tdfp": "dp-lap"}.get(word, word) for word in FIT]
    assert call(capfd, *lap, "--schema", "stays.toml", "--json", "--products", "none")[0] == 0
    words = ("evaluate", "fake.parquet", "policy", "--unit", "patient", "--epsilon", "1", "--delta", "1e-6")
    assert call(capfd, *words, "--out", "e", "--spend-anyway")[0] == 0 and (here / "e" / "evaluation.json").is_file()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('feature = ["map"]', "NAME:LO..HI"),
        ('feature = ["map:low..130"]', "in place of a number"),
        ('feature = ["map:130..30"]', "smaller one first"),
        ('category = ["ward"]', "NAME:a,b,c"),
        ('action_edges = ["0,250"]', "names 2 columns, and `action_edges` gives 1 lists"),
        ('action_edges = ["0,x", "0,1"]', "in place of a number"),
        ("feature = 3", "list of texts"),
        ('horizon = "six"', "whole number"),
        ('rewards_at_end = "yes"', "without quotes"),
        ('unit = ""', "name of a column"),
        ("horizont = 6", "unknown line"),
        ("horizon 6", "not a TOML file"),
    ],
)
def test_a_schema_file_that_says_nothing_sensible(here: Path, capfd: Any, line: str, words: str) -> None:
    name = line.split(" ")[0]
    kept = [old for old in SCHEMA.strip().splitlines() if not old.startswith(f"{name} ")]
    (here / "stays.toml").write_text("\n".join([*kept, line]))
    code, _, err = call(capfd, "schema", "check", "stays.toml")
    assert code == 2 and words in err


def test_a_table_in_place_of_a_schema_is_not_quoted(here: Path, capfd: Any) -> None:
    (here / "stays.bin").write_bytes(b"PAR1\x98\xff\x00")
    code, _, err = call(capfd, "schema", "check", "stays.bin")
    assert code == 2 and "Give a schema in TOML" in err and "0x98" not in err


def test_more_than_twelve_actions_are_asked_for(here: Path, capfd: Any) -> None:
    wide = SCHEMA.replace("0,0.05", "0,1,2,3,4")
    (here / "stays.toml").write_text(wide)
    code, _, err = call(capfd, "schema", "check", "stays.toml")
    assert code == 2 and "15 actions, but `max_actions` is 12" in err
    (here / "stays.toml").write_text(wide + "max_actions = 15\n")
    assert call(capfd, "schema", "check", "stays.toml")[0] == 0


def test_a_grid_becomes_a_schema_and_a_policy(here: Path, capfd: Any) -> None:
    rows = ["patient;at;map;lactate;dose;death;left"]
    for patient in range(120):
        for hour in range(3):
            last = hour == 2
            outcome = f"{patient % 2};1" if last else ";0"
            rows.append(
                f"p{patient};2026-05-01 0{hour}:00:00;{60 + patient % 3 * 10},5;{hour * 2};{patient % 2};{outcome}"
            )
    (here / "raw.csv").write_text("\n".join(rows) + "\n")
    words = (
        "--unit",
        "patient",
        "--time",
        "at",
        "--every",
        "1h",
        "--mean",
        "map",
        "--last",
        "lactate",
        "--horizon",
        "4",
    )
    words += (
        "--grid",
        "map:65,78",
        "--grid",
        "lactate:2,4",
        "--action",
        "dose:max",
        "--reward",
        "death",
        "--end",
        "left",
    )
    words += ("--delimiter", ";", "--decimal", ",")
    assert "--good" in call(capfd, "prepare", "raw.csv", "stays.parquet", *words)[2]
    code, out, err = call(capfd, "prepare", "raw.csv", "stays.parquet", *words, "--good", "low")
    assert code == 0 and "10 states" in out and "`not_death` holds 1 - death" in out, err
    names = (here / "stays.states.txt").read_text().splitlines()
    assert names[0] == "map < 65, lactate < 2" and names[-1] == "ended"
    assert call(capfd, "schema", "init", "stays.parquet", "--out", "grid.toml")[0] == 0
    draft = (here / "grid.toml").read_text()
    assert 'reward = "not_death"' in draft and "terminal = [9]" in draft and "num_states = 10" in draft
    (here / "grid.toml").write_text(draft.replace('"FILL-IN"', '"0,1"'))
    assert call(capfd, "schema", "check", "grid.toml", "stays.parquet")[0] == 0
    words = (
        "fit",
        "stays.parquet",
        "--schema",
        "grid.toml",
        "--recipe",
        "dp-tdfp",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
    )
    code, _, err = call(capfd, *words, "--state-names", "stays.states.txt", "--out", "policy")
    assert code == 0, err


def test_a_reward_that_sounds_like_harm_needs_a_direction(here: Path, capfd: Any) -> None:
    (here / "stays.toml").write_text(SCHEMA.replace('reward = "alive"', 'reward = "death"'))
    code, _, err = call(capfd, "schema", "check", "stays.toml")
    assert code == 2 and "State which values are good" in err
    (here / "stays.toml").write_text(SCHEMA.replace('reward = "alive"', 'reward = "death"\ngood = "low"'))
    code, _, err = call(capfd, "schema", "check", "stays.toml")
    assert code == 2 and "prepare --good low" in err
    (here / "stays.toml").write_text(SCHEMA.replace('reward = "alive"', 'reward = "alive"\ngood = "high"'))
    words = ("--recipe", "dp-lap", "--epsilon", "1", "--delta", "1e-6", "--out", "policy")
    code, _, err = call(capfd, "fit", "stays.parquet", "--schema", "stays.toml", "--reward", "death", *words)
    assert code == 2 and "State which values are good" in err  # `good` of the schema is about `alive`
    code, _, err = call(capfd, "fit", "raw.csv", "--schema", "stays.toml", *words)
    assert code == 2 and "`privrl prepare` makes a table of steps from a CSV file" in err


@pytest.mark.parametrize("name", ["raw.tsv", "raw.txt"])
def test_text_with_another_ending_is_refused_with_the_same_remedy(here: Path, capfd: Any, name: str) -> None:
    """Before, `schema init` took it for a damaged Parquet file."""
    (here / name).write_text("id\tmap\n1\t70\n")
    code, _, err = call(capfd, "schema", "init", name, "--delimiter", "tab")
    assert code == 2 and "rename it to .csv, and declare the character (`--delimiter`)" in err
    (here / "raw.csv").write_text("id\tmap\n1\t70\n")
    assert call(capfd, "schema", "init", "raw.csv", "--delimiter", "tab")[0] == 0


def test_a_draft_of_a_csv_file_and_a_row_outside_a_bound(here: Path, capfd: Any) -> None:
    code, out, _ = call(capfd, "schema", "init", "raw.csv")
    assert (
        code == 0 and 'reward = "alive"' in out and "map:FILL-IN..FILL-IN" in out and "A CSV file has no types" in out
    )
    assert "`--delimiter`" not in out
    (here / "odd.csv").write_bytes("patient_id;Größe;died\n1;1,5;0\n".encode("cp1252"))
    code, out, _ = call(
        capfd, "schema", "init", "odd.csv", "--delimiter", ";", "--decimal", ",", "--encoding", "cp1252"
    )
    assert code == 0 and "Größe:FILL-IN..FILL-IN" in out
    assert call(capfd, "schema", "init", "odd.csv", "--decimal", ",")[0] == 2  # the delimiter, too
    call(capfd, "prepare", "raw.csv", "stays.parquet", *PREPARE)
    (here / "stays.toml").write_text(
        SCHEMA.replace("map:30", "map:75").replace('terminated = "terminated"', "").replace("down", "down:missing")
    )
    code, out, _ = call(capfd, "schema", "check", "stays.toml", "stays.parquet")
    assert code == 0 and "Outside the bounds: Column `map` is below 75 at row 1 of" in out and "67" not in out
    code, out, _ = call(capfd, "schema", "check", "stays.toml", "stays.parquet", "--json")
    assert len(json.loads(out)["outside"]) == 1 and json.loads(out)["refused"] == []
    (here / "stays.toml").write_text(SCHEMA.replace("map:30", "map:75").replace('terminated = "terminated"', ""))
    code, out, _ = call(capfd, "schema", "check", "stays.toml", "stays.parquet")  # a fault hides no other column
    assert code == 2 and "Refused: Column `ward` has no value" in out
    assert "Outside the bounds: Column `map` is below 75 at row 1 of" in out
