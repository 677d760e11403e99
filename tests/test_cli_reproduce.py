"""`privrl reproduce`: one JSON object, a table of claims, finished parts used again, and clear refusals."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privrl.cli import main
from privrl.figures.all_figures import figures
from privrl.figures.cell import Cell, Measured
from privrl.figures.claims import Claim, untestable
from privrl.figures.figure import SEED, Figure
from privrl.figures.figure_rules import smaller
from privrl.figures.panels import Panel, Series


def made_up(cell: Cell, seed: int) -> Measured:
    at = np.array([cell.people // 2, cell.people])
    values = np.random.default_rng(seed).uniform(0.2, 0.3, size=(cell.seeds, 1)) * at * (cell.epsilon or 1.0)
    return Measured("regret", at, values, 1.0 * at, {"uniform": 1.0, "optimal": 1.0}, cell.epsilon, 0.0)


CELLS = tuple(Cell("learner", "world", people=40, seeds=3, epsilon=e, how=made_up) for e in (1.0, 2.0))
TINY = Figure(
    name="tiny",
    paper="nobody",
    title="made up",
    summary="Made up.",
    cells=CELLS,
    smoke=CELLS[:1],
    panels=(Panel("made up", (Series(CELLS, 0, "learner"),), x="epsilon"),),
    claims=(Claim("Less is more.", smaller(*CELLS)), Claim("Nobody knows.", untestable("Indeed."))),
)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(figures, "tiny", TINY)


def call(*arguments: str | Path) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["reproduce", *map(str, arguments)])
    return code, out.getvalue(), err.getvalue()


def as_json(*arguments: str | Path) -> dict[str, Any]:
    code, out, err = call(*arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def test_json_has_claims_numbers_and_files(tmp_path: Path) -> None:
    content = as_json("tiny", "--out", tmp_path / "f", "--workers", "1")
    assert (content["figure"], content["smoke"], content["seed"]) == ("tiny", False, SEED)
    assert [claim["status"] for claim in content["claims"]] == ["reproduced", "cannot be tested"]
    assert content["claims"][0]["number"] < 0 < content["claims"][0]["standard_error"]
    assert set(content["files"]) == {"runs", "svg", "png", "verdict"}
    assert all(Path(path).is_file() for path in content["files"].values())
    assert content["cells"] == {"run": 2, "kept": 0, "changed": [], "older_code": []}
    assert as_json("tiny", "--out", tmp_path / "f", "--workers", "1")["cells"]["kept"] == 2


def test_without_json_there_is_a_table_of_claims(tmp_path: Path) -> None:
    code, out, err = call("tiny", "--out", tmp_path / "f", "--workers", "1")
    assert code == 0, err
    assert "Less is more." in out and "cannot be tested" in out and "verdict.md" in out


def test_a_smoke_run_says_so(tmp_path: Path) -> None:
    content = as_json("tiny", "--out", tmp_path / "f", "--smoke")
    assert content["smoke"] is True and content["claims"] == []
    code, out, _ = call("tiny", "--out", tmp_path / "f", "--smoke")
    assert code == 0 and "nothing is judged" in out


def test_a_changed_seed_is_told(tmp_path: Path) -> None:
    as_json("tiny", "--out", tmp_path / "f", "--workers", "1")
    code, out, err = call("tiny", "--out", tmp_path / "f", "--workers", "1", "--seed", "5", "--json")
    assert code == 0 and json.loads(out)["seed"] == 5
    assert "settings have changed" in err and "learner, epsilon 2" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sahu-fig1", "--out", "f"), "Did you mean `sahu-fig1"),
        (("tiny", "--out", "f", "--workers", "0"), "`--workers` is 0"),
        (("tiny", "--out", "f", "--seed", "-1"), "`--seed` is -1"),
    ],
)
def test_bad_input_is_explained(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert not (tmp_path / "f").exists()
