"""Figures: cells are run once and kept with what made them, claims are judged by stated rules, plots can be read.

Most tests use cells that a small function makes up, so that they take no time; the registered figures are drawn and
judged on made-up numbers too, which shows that each refers to its own cells only.
"""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import privrl
from privrl.envs.worlds_by_name import names
from privrl.executors.processes import Processes
from privrl.figures import figure as _figure
from privrl.figures import finished_cells, verdict
from privrl.figures.all_figures import figures, get
from privrl.figures.cell import Cell, Measured, by_recipe
from privrl.figures.claims import Claim, format_estimate, untestable
from privrl.figures.figure import SEED, Figure, plan_cells, reproduce
from privrl.figures.figure_rules import smaller
from privrl.figures.panels import Panel, Series, draw_panels
from privrl.figures.verdict import Earlier, compose_verdict
from privrl.plots.lines import _GAP, Line, LinesPanel, _move_inside, draw_lines
from privrl.plots.style import spread_labels
from privrl.recipes.all_recipes import get as get_recipe

CALLS: list[str] = []
FAILING: set[str] = set()
LEVELS = {"uniform": 1.0, "myopic": 0.5, "left": 1.2, "zero": 1.0, "mode": 0.8, "behaviour": 0.9, "optimal": 2.0}


def made_up(cell: Cell, seed: int) -> Measured:
    """A regret curve that depends on the settings and the seed, and notes that it was asked for."""
    CALLS.append(cell.recipe)
    if cell.recipe in FAILING:
        raise RuntimeError("interrupted")
    at = np.arange(1, 11) * cell.people // 10
    slope = np.random.default_rng(seed).uniform(0.2, 0.3, size=(cell.seeds, 1)) * (cell.epsilon or 1.0)
    return Measured("regret", at, slope * at, 1.0 * at, LEVELS, cell.epsilon, 0.1)


def cell(recipe: str = "a", epsilon: float | None = None, **more: object) -> Cell:
    return Cell(recipe, "world", people=100, seeds=4, epsilon=epsilon, how=made_up, **more)


A, B, C = cell("a", 1.0), cell("b", 2.0), cell("c")


def figure(*cells: Cell, name: str = "tiny") -> Figure:
    cells = cells or (A, B, C)
    return Figure(
        name=name,
        paper="nobody",
        title="nothing in particular",
        summary="Made up.",
        cells=cells,
        smoke=cells[:1],
        panels=(Panel("made up", tuple(Series((c,), i, c.label) for i, c in enumerate(cells)), y="regret"),),
        claims=(
            Claim("a is smaller than b.", smaller(cells[0], cells[-2]), "reproduced"),
            Claim("b is smaller than a.", smaller(cells[-2], cells[0]), "reproduced"),
            Claim("It is beautiful.", untestable("No run shows beauty.")),
        ),
        earlier=Earlier("a note", ((cells[0], 0.25, 0.05), (cells[0], 0.9, 0.01))),
        notes=("There is no paper.",),
    )


@pytest.fixture(autouse=True)
def _fresh_calls() -> None:
    CALLS.clear()
    FAILING.clear()


@pytest.fixture
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plots take longer than all the rest; what is not about them goes without."""
    monkeypatch.setattr(_figure, "_draw", lambda figure, folder, results: {})


# Running and keeping


@pytest.mark.usefixtures("_undrawn")
def test_a_finished_figure_is_not_run_again(tmp_path: Path) -> None:
    first = reproduce(figure(), tmp_path / "f")
    assert (CALLS, first.run, first.kept) == (["a", "b", "c"], 3, 0)
    text = first.files["verdict"].read_text()
    second = reproduce(figure(), tmp_path / "f")
    assert (len(CALLS), second.run, second.kept, second.changed) == (3, 0, 3, ())
    assert second.files["verdict"].read_text() == text


@pytest.mark.usefixtures("_undrawn")
def test_an_interrupted_figure_goes_on_where_it_was(tmp_path: Path) -> None:
    FAILING.add("b")
    with pytest.raises(RuntimeError, match="interrupted"):
        reproduce(figure(), tmp_path / "f")
    FAILING.clear()
    CALLS.clear()
    done = reproduce(figure(), tmp_path / "f")
    assert (CALLS, done.run, done.kept) == (["b", "c"], 2, 1)


@pytest.mark.usefixtures("_undrawn")
def test_a_changed_setting_is_noticed_and_run_again(tmp_path: Path) -> None:
    reproduce(figure(), tmp_path / "f")
    more = dataclasses.replace(B, seeds=7)
    done = reproduce(figure(A, more, C), tmp_path / "f")
    assert (CALLS[3:], done.changed) == (["b"], (B.label,))
    table = pq.read_table(done.files["runs"]).to_pydict()
    assert {(r, s) for r, s in zip(table["recipe"], table["seeds"], strict=True)} == {("a", 4), ("b", 7), ("c", 4)}


@pytest.mark.usefixtures("_undrawn")
def test_another_seed_runs_everything_again(tmp_path: Path) -> None:
    first = reproduce(figure(), tmp_path / "f")
    before = pq.read_table(first.files["runs"])["value"].to_pylist()
    second = reproduce(figure(), tmp_path / "f", seed=1)
    assert (second.run, len(second.changed)) == (3, 3)
    assert pq.read_table(second.files["runs"])["value"].to_pylist() != before


@pytest.mark.usefixtures("_undrawn")
def test_a_damaged_file_is_run_again(tmp_path: Path) -> None:
    reproduce(figure(), tmp_path / "f")
    finished_cells.locate_cell(tmp_path / "f", B.slug).write_bytes(b"half a file")
    assert reproduce(figure(), tmp_path / "f").run == 1
    assert not list((tmp_path / "f").rglob("*.part"))


@pytest.mark.usefixtures("_undrawn")
def test_fresh_runs_everything_again_to_the_same_numbers(tmp_path: Path) -> None:
    first = pq.read_table(reproduce(figure(), tmp_path / "f").files["runs"])
    again = reproduce(figure(), tmp_path / "f", fresh=True)
    assert (again.run, again.changed) == (3, ())
    assert pq.read_table(again.files["runs"])["value"].equals(first["value"])


@pytest.mark.usefixtures("_undrawn")
def test_other_code_is_noticed_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reproduce(figure(), tmp_path / "f")
    later = {**finished_cells.describe_code(), "source": "something else"}
    monkeypatch.setattr(finished_cells, "describe_code", lambda: later)
    done = reproduce(figure(), tmp_path / "f")
    assert (done.run, len(done.older)) == (0, 3)
    assert "Made by another version of the code" in done.files["verdict"].read_text()


@pytest.mark.usefixtures("_undrawn")
def test_rows_say_where_they_come_from(tmp_path: Path) -> None:
    done = reproduce(figure(), tmp_path / "f")
    table = pq.read_table(done.files["runs"])
    rows = table.to_pylist()
    assert len(rows) == 3 * 4 * 10
    versions = finished_cells.describe_code()
    for row in rows:
        assert {name: row[name] for name in versions} == versions
        assert row["figure"] == "tiny" and row["people"] == 100 and row["measure"] == "regret"
    assert {(row["recipe"], row["epsilon"], row["certified_epsilon"]) for row in rows} == {
        ("a", 1.0, 1.0),
        ("b", 2.0, 2.0),
        ("c", None, None),
    }
    assert {row["seed"] for row in rows} == {c.seed(SEED) for c in (A, B, C)}
    wanted = made_up(A, A.seed(SEED))
    found = [row["value"] for row in rows if row["recipe"] == "a" and row["repetition"] == 2]
    assert found == wanted.values[2].tolist()
    kept = finished_cells.read_cell(tmp_path / "f", A.slug)
    assert kept is not None and kept.measured.levels == LEVELS
    np.testing.assert_array_equal(kept.measured.values, wanted.values)
    assert versions["privrl"] == privrl.__version__ and len(versions["source"]) == 16


def test_cells_have_seeds_of_their_own() -> None:
    seeds = [c.seed(SEED) for f in figures.values() for c in set(f.cells)]
    own = {(c.slug, c.seeds): c.seed(SEED) for f in figures.values() for c in f.cells}
    assert len(set(own.values())) == len(own)
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert A.seed(1) - A.seed(0) in (1, 1 - 2**31)


@pytest.mark.usefixtures("_undrawn")
def test_strange_folders_are_refused(tmp_path: Path) -> None:
    reproduce(figure(), tmp_path / "f")
    with pytest.raises(ValueError, match="contains figure `tiny`"):
        reproduce(figure(name="other"), tmp_path / "f")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("dear")
    with pytest.raises(ValueError, match="contains other files"):
        reproduce(figure(), tmp_path / "mine")
    assert sorted(p.name for p in (tmp_path / "mine").iterdir()) == ["thesis.txt"]


@pytest.mark.usefixtures("_undrawn")
def test_progress_counts_every_cell_also_those_that_were_there(tmp_path: Path) -> None:
    told: list[str] = []
    reproduce(figure(), tmp_path / "f", progress=told.append)
    reproduce(figure(), tmp_path / "f", progress=told.append)
    assert sorted(told) == sorted([A.label, B.label, C.label] * 2)


# What is written


@pytest.mark.usefixtures("_undrawn")
def test_the_verdict_holds_every_claim_with_its_number(tmp_path: Path) -> None:
    done = reproduce(figure(), tmp_path / "f")
    assert [outcome.status for _, outcome in done.outcomes] == ["reproduced", "not reproduced", "cannot be tested"]
    text = done.files["verdict"].read_text()
    for claim, outcome in done.outcomes:
        assert claim.text in text and outcome.text in text
    assert "1 reproduced, 1 not reproduced, 1 cannot be tested" in text
    assert "This agrees with our earlier finding (a note)" in text and "Our earlier finding was: reproduced" in text
    ours = made_up(A, A.seed(SEED)).final_share
    assert format_estimate(float(ours.mean()), float(ours.std(ddof=1)) / 2) in text
    content = json.loads(json.dumps(done.to_json(), allow_nan=False))
    assert [c["status"] for c in content["claims"]] == [outcome.status for _, outcome in done.outcomes]
    assert content["references"][0]["comparison"] == "agrees"
    assert content["references"][1]["comparison"].startswith("better now")


@pytest.mark.usefixtures("_undrawn")
def test_a_smoke_run_judges_nothing(tmp_path: Path) -> None:
    done = reproduce(figure(), tmp_path / "f", smoke=True)
    assert (CALLS, done.outcomes, done.comparisons) == (["a"], (), ())
    text = done.files["verdict"].read_text()
    assert "smoke run" in text and "Not judged" in text and "reproduced" not in text
    assert pq.read_table(done.files["runs"])["people"].unique().to_pylist() == [A.few]
    full = reproduce(figure(), tmp_path / "f")
    assert full.run == 3 and "smoke" not in full.files["verdict"].read_text()


def test_plots_are_written_in_both_formats(tmp_path: Path) -> None:
    files = reproduce(figure(), tmp_path / "f").files
    assert files["png"].read_bytes().startswith(b"\x89PNG")
    svg = files["svg"].read_text()
    assert svg.rstrip().endswith("</svg>") and "http://" not in svg.split("<defs")[-1]


# Plots


@given(st.lists(st.floats(0, 1), min_size=1, max_size=10))
def test_names_of_lines_never_overlap_and_stay_inside(ends_: list[float]) -> None:
    places = _move_inside(spread_labels(ends_, _GAP), _GAP)
    assert max(places) <= 0.98 and min(places) >= 0.0
    assert (np.diff(sorted(places)) >= _GAP - 1e-9).all()
    assert [places[i] for i in np.argsort(ends_, kind="stable")] == sorted(places)


@pytest.mark.parametrize("log", [False, True])
def test_a_panel_shows_all_lines_and_their_names(log: bool) -> None:
    lines = (
        Line("one", (1.0, 10.0), (0.1, 0.2), (0.01, 0.01), 0, markers=True),
        Line("two", (1.0, 10.0), (0.0, 1e-9), (0.0, 0.0), 1),
        Line("level", (1.0, 10.0), (1.0, 1.0), None, None),
    )
    drawn = draw_lines([LinesPanel("title", "x", "y", lines, log="xy" if log else "")])
    axes = drawn.axes[0]
    assert [text.get_text() for text in axes.texts] == ["one", "two", "level"]
    low, high = axes.get_ylim()
    assert high >= 1.0 and (low > 0) == log


# The registered figures


def imagined(cell: Cell) -> Measured:
    """Numbers of the right kind for any cell."""
    rng = np.random.default_rng(cell.seed(0))
    levels = {k: v for k, v in LEVELS.items() if (k == "zero") == cell.env.startswith("lq") or k == "optimal"}
    share = rng.uniform(0.01, 1.0) * (1 + 0.05 * rng.random((cell.seeds, 1)))
    if cell.how is by_recipe and get_recipe(cell.recipe).family == "offline":
        return Measured("suboptimality", np.array([cell.people]), share, np.ones(1), levels, 1.0, 0.0)
    at = np.unique(np.geomspace(1, cell.people, 20).astype(int))
    if cell.how is not by_recipe:
        return Measured("suboptimality", at, share * np.ones(at.size), np.ones(at.size), levels, None, 0.0)
    return Measured("regret", at, share * at**0.8, 1.0 * at, levels, math.inf, 0.0)


def test_the_figures_that_there_are() -> None:
    papers = "sahu-fig1a sahu-fig1b liao-he-gu-fig2a liao-he-gu-fig2b qiao-wang-fig1a qiao-wang-fig1b wang-hegde-fig1"
    ours = "frontier-offline frontier-online frontier-local frontier-lq drift tabular"
    assert list(figures) == f"{papers} {ours}".split()
    with pytest.raises(ValueError, match="Did you mean `sahu-fig1"):
        get("sahu-fig1")


@pytest.mark.parametrize("name", figures)
def test_every_figure_judges_and_draws_its_own_cells(name: str) -> None:
    one = figures[name]
    results = {c: imagined(c) for c in one.cells}
    outcomes = tuple((claim, claim.rule(results)) for claim in one.claims)
    comparisons = one.earlier.compare(results)
    code = {"privrl": "0"}
    text = compose_verdict(one, results, outcomes, comparisons, smoke=False, seed=1, older=(), code=code)
    assert all(claim.text in text for claim in one.claims)
    drawn = draw_panels(one.panels, results)
    shown = [text.get_text() for axes in drawn.axes for text in axes.texts]
    assert {series.name for panel in one.panels for series in panel.series} <= set(shown)
    some = {c: imagined(c) for c in one.smoke}
    assert draw_panels(one.panels, some).axes


def test_runs_at_several_epsilons_are_one_table_with_the_smallest_in_bold() -> None:
    world = {"people": 100, "seeds": 2, "delta": 1e-5}
    cells = [Cell(r, "riverswim", epsilon=e, **world) for r in ("dp-obi", "dp-ucbvi") for e in (1.0, 10.0)]
    ends = dict(zip(cells, ((0.1, 0.12), (0.3, 0.31), (0.1, 0.13), (0.01, 0.011)), strict=True))

    def found(cell: Cell) -> Measured:
        values = np.array(ends[cell])[:, None]
        return Measured("regret", np.array([100]), values, np.ones(1), {"uniform": 1.0}, cell.epsilon, 0.0)

    results = {cell: found(cell) for cell in cells}
    alone = Cell("dp-obi", "riverswim", epsilon=3.0, **world | {"people": 50})
    text = "\n".join(verdict._runs(results | {alone: dataclasses.replace(found(cells[0]), certified=3.0)}))
    assert "| riverswim | `dp-obi` | **0.110 ± 0.010** | 0.3050 ± 0.0050 |" in text
    assert "|  | `dp-ucbvi` | **0.115 ± 0.015** | **0.01050 ± 0.00050** |" in text
    assert text.count("| dp-obi, epsilon 3 | riverswim | 3 |") == 1 and "| dp-obi, epsilon 1 |" not in text


@pytest.mark.parametrize("name", figures)
def test_every_cell_names_a_recipe_a_world_and_a_budget(name: str) -> None:
    for c in figures[name].cells:
        assert c.env in names()
        if c.how is by_recipe:
            recipe = get_recipe(c.recipe)
            recipe.privatizer(**c.budget)
            assert (recipe.trust == "none") == (not c.budget)
            assert c.command(0).split()[1] == ("fit" if recipe.family == "offline" else "run")
        small = c.shrink()
        assert (small.seeds, small.people) == (2, c.few)
    assert plan_cells(figures[name], smoke=True).keys() <= plan_cells(figures[name], smoke=False).keys()


@pytest.mark.parametrize(
    ("recipe", "budget", "what"),
    [
        ("dp-apvi", {"epsilon": 2.0, "delta": 1e-3}, "value"),
        pytest.param("dp-ucbvi", {"epsilon": 2.0, "delta": 1e-3}, "regret", marks=pytest.mark.slow),
    ],
)
def test_a_cell_is_what_its_command_prints(
    recipe: str, budget: dict[str, float], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from privrl.cli import main

    c = Cell(recipe, "riverswim", people=12, seeds=2, world=(("states", 3), ("horizon", 3)), **budget)
    found = by_recipe(c, c.seed(3))
    assert main([*c.command(3).split()[1:], "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    values = found.final if what == "regret" else found.levels["optimal"] - found.final
    np.testing.assert_allclose(values, printed[what], rtol=1e-9)
    uniform = printed["baselines"]["uniform"]
    assert found.certified == printed["epsilon"]
    per_person = found.levels["optimal"] - uniform if what == "value" else uniform / c.people
    assert found.levels["uniform"] == pytest.approx(per_person)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "wang-hegde-fig1" else pytest.mark.slow) for name in figures]
)
def test_every_figure_has_a_smoke_run(name: str, tmp_path: Path) -> None:
    done = reproduce(figures[name], tmp_path / name, smoke=True)
    assert done.run == len(figures[name].smoke)
    assert all(path.stat().st_size > 500 for path in done.files.values())
    rows = pq.read_table(done.files["runs"]).to_pylist()
    assert all(row["figure"] == name and math.isfinite(row["value"]) and row["value"] >= -1e-9 for row in rows)
    assert "No claim is judged" in done.files["verdict"].read_text()


@pytest.mark.slow
def test_processes_share_the_cells_and_change_nothing(tmp_path: Path) -> None:
    world = (("states", 3), ("horizon", 3))
    cells = tuple(
        Cell("ldp-ucbvi", "riverswim", people=20, seeds=2, epsilon=epsilon, world=world) for epsilon in (1.0, 2.0, 3.0)
    )
    alone = reproduce(figure(*cells), tmp_path / "alone")
    with Processes(2) as executor:
        together = reproduce(figure(*cells), tmp_path / "together", executor=executor)
    values = [pq.read_table(done.files["runs"])["value"].to_numpy() for done in (alone, together)]
    np.testing.assert_array_equal(values[0], values[1])
