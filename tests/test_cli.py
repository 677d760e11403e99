"""The command line keeps its contract: JSON keys, exit codes, clear messages, and nothing left behind."""

import contextlib
import io
import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from typer.core import TyperGroup

import privrl
from privrl.cli import main
from privrl.cli.commands import Command
from privrl.cli.main import root
from privrl.recipes.all_recipes import recipes

RIVER = ("--env-arg", "states=3", "--env-arg", "horizon=4")
BUDGET = ("--epsilon", "2", "--delta", "1e-4")
COLUMNS = tuple(
    f"--{option}={column}"
    for option, column in {
        "unit": "unit_id",
        "episode": "episode_id",
        "step": "step",
        "state": "state",
        "action": "action",
        "reward": "reward",
        "next-state": "next_state",
    }.items()
)
SIZES = ("--horizon", "4", "--num-states", "3", "--num-actions", "2")


@dataclass(frozen=True)
class Called:
    """What a command left on its two streams, and its exit code."""

    code: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        """The one object on standard output; anything beside it is an error."""
        assert self.code == 0, self.err
        return json.loads(self.out)


def call(*arguments: str | Path) -> Called:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return Called(code, out.getvalue(), err.getvalue())


def is_number(x: object) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x)


@pytest.fixture(scope="module")
def world() -> privrl.envs.Env:
    return privrl.envs.make("riverswim", states=3, horizon=4)


@pytest.fixture(scope="module")
def table(world: privrl.envs.Env, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "people.parquet"
    people = world.sample(world.behaviour_policy(), 300, jax.random.key(0))
    privrl.data.write_parquet(path, people, units=[f"person {i // 2}" for i in range(300)])
    return path


# ------------------------------------------------------------------------------------------------------- run


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    plot = tmp_path_factory.mktemp("plot") / "regret.svg"
    arguments = ("run", "dp-ucbvi", "--env", "riverswim", *RIVER, "--episodes", "600", *BUDGET)
    return call(*arguments, "--seeds", "3", "--seed", "7", "--plot", plot, "--json").json(), plot


def test_run_json_keeps_its_contract(ran: tuple[dict[str, Any], Path], world: privrl.envs.Env) -> None:
    content, plot = ran
    assert (content["recipe"], content["env"], content["env_seed"]) == ("dp-ucbvi", "riverswim", 0)
    assert (content["episodes"], content["horizon"], content["seeds"], content["seed"]) == (600, 4, 3, 7)
    assert content["delta"] == 1e-4 and content["adjacency"] == "replace-one"
    assert 2 * (1 - 1e-3) <= content["epsilon"] <= 2
    assert content["certificate"]["epsilon"] == content["epsilon"]
    assert content["certificate"]["notion"] == "joint"
    assert len(content["regret"]) == 3 and all(is_number(x) and x >= 0 for x in content["regret"])
    curve = content["curve"]
    assert len(curve["episodes"]) == len(curve["mean"]) == len(curve["se"])
    assert curve["episodes"][-1] == 600
    assert curve["mean"][-1] == pytest.approx(np.mean(content["regret"]))
    assert curve["se"][-1] == pytest.approx(np.std(content["regret"], ddof=1) / math.sqrt(3))
    expected = 600 * float(world.optimal_value - world.value(world.uniform_policy()))
    assert content["baselines"]["uniform"] == pytest.approx(expected)
    assert content["baselines"]["optimal_value"] == pytest.approx(float(world.optimal_value))
    assert is_number(content["baselines"]["myopic"]) and content["seconds"] > 0
    assert plot.read_text().lstrip().startswith("<?xml")


def test_run_repeats_with_its_seed_and_is_fresh_without(ran: tuple[dict[str, Any], Path]) -> None:
    arguments = ("run", "dp-ucbvi", "--env", "riverswim", *RIVER, "--episodes", "600", *BUDGET, "--seeds", "3")
    assert call(*arguments, "--json", "--seed", "7").json()["regret"] == ran[0]["regret"]
    one, other = call(*arguments, "--json").json(), call(*arguments, "--json").json()
    assert one["seed"] != other["seed"]
    assert one["regret"] != other["regret"]


def test_run_covers_people_who_come_back(ran: tuple[dict[str, Any], Path]) -> None:
    """The noise of four times a person's terms, in the same compiled program."""
    arguments = ("run", "dp-ucbvi", "--env", "riverswim", *RIVER, "--episodes", "600", *BUDGET, "--seeds", "3")
    content = call(*arguments, "--seed", "7", "--max-episodes-per-unit", "4", "--json").json()
    assert (content["max_episodes_per_unit"], content["min_block_distance"], content["delay"]) == (4, 0, 0)
    once, often = (c["certificate"]["releases"][0]["noise"][0]["scale"] for c in (ran[0], content))
    assert often == pytest.approx(4 * once)
    assert content["certificate"]["records_per_unit"] == 4
    assert content["regret"] != ran[0]["regret"]


def test_run_without_a_known_end_forgets_in_a_world_that_drifts() -> None:
    """The losses of policies that never learn are against the best policy of each moment, too."""
    arguments = ("run", "dp-ucbvi", "--env", "drifting-river", "--env-arg", "period=400", "--env-arg", "horizon=3")
    arguments += ("--episodes", "90", *BUDGET, "--seed", "7", "--epoch", "40", "--forget", "0.5", "--json")
    content = call(*arguments, "--open-ended").json()
    assert (content["open_ended"], content["epoch"], content["forget"]) == (True, 40, 0.5)
    assert content["certificate"]["study"]["users"]["open-ended"]["forget"] == 0.5
    world = privrl.envs.make("drifting-river", period=400, horizon=3)
    each = [float(world.at(n).regret(world.uniform_policy())) for n in range(90)]
    assert content["baselines"]["uniform"] == pytest.approx(sum(each), rel=1e-2)
    refused = call(*arguments)
    assert refused.code != 0 and "Add `--open-ended`" in refused.err


def test_run_without_privacy_says_infinity_and_prints_a_table() -> None:
    arguments = ("run", "ucbvi", "--env", "riverswim", *RIVER, "--episodes", "30", "--seed", "1")
    content = call(*arguments, "--json").json()
    assert content["epsilon"] == content["certificate"]["epsilon"] == "inf"
    assert content["curve"]["se"] == [None] * len(content["curve"]["mean"])
    shown = call(*arguments)
    assert shown.code == 0
    assert f"{content['regret'][0]:.2f}" in shown.out and "epsilon is infinite" in shown.out


def test_local_recipe_takes_a_delta_and_needs_none() -> None:
    arguments = ("run", "ldp-ucbvi", "--env", "riverswim", *RIVER, "--episodes", "20", "--epsilon", "2", "--seed", "1")
    plain = call(*arguments, "--json").json()
    assert (plain["delta"], plain["certificate"]["notion"]) == (0, "local")
    assert plain["epsilon"] == pytest.approx(2)
    assert call(*arguments, "--delta", "1e-5", "--json").json()["regret"] == plain["regret"]


# ------------------------------------------------------------------------------------------------------- fit


def test_fit_on_a_world_keeps_its_contract(world: privrl.envs.Env, tmp_path: Path) -> None:
    arguments = ("fit", "env:riverswim", *RIVER, "--recipe", "dp-apvi", "--rho", "0.5", "--episodes", "200")
    content = call(*arguments, "--seeds", "2", "--seed", "3", "--out", tmp_path / "o", "--json").json()
    assert (content["recipe"], content["users"], content["episodes"]) == ("dp-apvi", 200, 200)
    assert content["rules"] == []
    assert content["certificate"]["rho"] == pytest.approx(0.5)
    assert is_number(content["epsilon"]) and is_number(content["delta"])
    assert (content["adjacency"], content["unit"], content["seed"]) == ("replace-one", "user", 3)
    baselines = content["baselines"]
    assert baselines["optimal"] == pytest.approx(float(world.optimal_value))
    for name in ("uniform", "behaviour", "mode"):
        policy = getattr(world, f"{name}_policy")()
        assert baselines[name] == pytest.approx(float(world.value(policy)))
    assert len(content["value"]) == 2 and all(0 <= v <= baselines["optimal"] + 1e-9 for v in content["value"])
    kept = privrl.Result.load(tmp_path / "o")
    assert float(world.value(kept.policy)) == pytest.approx(content["value"][0])
    shown = call(*arguments, "--seed", "3")
    assert "behaviour" in shown.out and "simulation" in shown.out


@pytest.fixture(scope="module")
def fitted(table: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    out = tmp_path_factory.mktemp("fitted") / "policy"
    arguments = ("--max-episodes-per-unit", "2", "--out", out, "--json")
    return call("fit", table, "--recipe", "dp-apvi", *BUDGET, *COLUMNS, *SIZES, *arguments).json(), out


def test_fit_on_a_table_then_certify_then_use_without_the_data(fitted: tuple[dict[str, Any], Path]) -> None:
    content, out = fitted
    assert (content["users"], content["unit"]) == (150, "unit_id")
    assert not {"value", "episodes", "seconds"} & set(content) and content["seed"] is None
    assert content["certificate"]["noise_source"] == "system"
    assert content["certificate"]["records_per_unit"] == 2
    saved = {path.name for path in out.iterdir()}
    assert saved == {"certificate.json", "policy.json", "policy.npz", "report.json"}
    loaded = privrl.Result.load(out)
    assert loaded.policy.probabilities.shape == (4, 3, 2)
    assert 0 <= loaded.policy.action(state=2, step=0) < 2
    assert call("certify", out, "--json").json()["ok"] is True


def test_a_saved_report_holds_only_public_sizes(fitted: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    report = json.loads((fitted[1] / "report.json").read_text())
    assert report["users"] == 150  # public, because neighbours replace one person
    assert "episodes" not in report  # not public: a person has one or two
    world = (
        "fit",
        "env:riverswim",
        *RIVER,
        "--recipe",
        "dp-apvi",
        *BUDGET,
        "--episodes",
        "50",
        "--out",
        tmp_path / "o",
    )
    assert call(*world, "--adjacency", "add-remove").code == 0
    assert not {"users", "episodes"} & set(json.loads((tmp_path / "o" / "report.json").read_text()))
    assert call(*world, "--overwrite").code == 0
    assert json.loads((tmp_path / "o" / "report.json").read_text())["episodes"] == 50


def test_a_seed_on_a_table_is_a_simulation_with_a_warning(table: Path, tmp_path: Path) -> None:
    arguments = ("fit", table, "--recipe", "dp-apvi", *BUDGET, *COLUMNS, *SIZES, "--seed", "4", "--json")
    first, second = (call(*arguments, "--out", tmp_path / name) for name in ("a", "b"))
    assert first.json()["certificate"]["noise_source"] == "seed"
    assert "Leave it out on real people" in first.err
    policies = [privrl.Result.load(tmp_path / name).policy.probabilities for name in ("a", "b")]
    np.testing.assert_array_equal(*policies)
    assert second.json()["seed"] == 4


def test_a_fit_with_a_log_refuses_an_older_copy_of_its_store(table: Path, tmp_path: Path) -> None:
    store, log, copy = tmp_path / "s.db", tmp_path / "s.log", tmp_path / "copy.db"
    privrl.ReleaseStore(store, log=log).close()
    shutil.copy(store, copy)
    arguments = ("fit", table, "--recipe", "dp-apvi", *BUDGET, *COLUMNS, *SIZES, "--out", tmp_path / "o")
    assert call(*arguments, "--store", store, "--store-log", log).code == 0
    refused = call(*arguments, "--overwrite", "--store", copy, "--store-log", log)
    assert refused.code == 2 and "behind its audit log" in refused.err


def test_a_large_delta_is_warned_about() -> None:
    arguments = ("fit", "env:riverswim", *RIVER, "--recipe", "dp-apvi", "--epsilon", "1", "--episodes", "50")
    assert "Warning: `--delta`" in call(*arguments, "--delta", "0.1", "--json").err
    assert "Warning" not in call(*arguments, "--delta", "1e-3", "--json").err


# ------------------------------------------------------------------------------------------------- bad input

TABLE = ("--recipe", "dp-apvi", *COLUMNS, *SIZES)
RENAMED = tuple(column.replace("=state", "=condition") for column in COLUMNS)
SMALL = ("--recipe", "dp-apvi", *COLUMNS, "--num-actions", "2")
WORLD = ("fit", "env:riverswim", "--recipe", "dp-apvi", "--episodes", "50")
ONLINE = ("run", "dp-ucbvi", "--env", "riverswim", "--episodes", "20")


def test_epsilon_alone_is_a_budget_for_running_sums() -> None:
    assert call(*ONLINE, "--epsilon", "1", "--json").json()["certificate"]["delta"] == 0.0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((*WORLD,), "needs a budget"),
        ((*WORLD, "--delta", "1e-4"), "alone is not a budget"),
        ((*WORLD, "--epsilon", "0", "--delta", "1e-4"), "`--epsilon` is 0"),
        ((*WORLD, "--epsilon", "-1", "--delta", "1e-4"), "`--epsilon` is -1"),
        ((*WORLD, "--epsilon", "nan", "--delta", "1e-4"), "`--epsilon` is nan"),
        ((*WORLD, "--epsilon", "inf", "--delta", "1e-4"), "finite"),
        ((*WORLD, "--epsilon", "1", "--delta", "0"), "strictly between 0 and 1"),
        ((*WORLD, "--epsilon", "1", "--delta", "1"), "strictly between 0 and 1"),
        ((*WORLD, "--epsilon", "1", "--delta", "nan"), "strictly between 0 and 1"),
        ((*WORLD, "--epsilon", "1", "--rho", "1"), "one currency"),
        ((*WORLD, "--rho", "0"), "`--rho` is 0"),
        ((*WORLD, "--epsilon", "one"), "--epsilon"),
        ((*WORLD, *BUDGET, "--adjacency", "swap"), "swap"),
        ((*WORLD, *BUDGET, "--horizon", "3"), "`--horizon` describes a table"),
        ((*WORLD, *BUDGET, "--sort"), "`--sort` describes a table"),
        ((*WORLD, *BUDGET, "--seeds", "0"), "at least 1"),
        ((*WORLD, *BUDGET, "--seed", "-1"), "`--seed` is -1"),
        ((*WORLD, *BUDGET, "--env-arg", "states"), "NAME=VALUE"),
        ((*WORLD, *BUDGET, "--env-arg", "states=3", "--env-arg", "states=4"), "twice"),
        ((*WORLD, *BUDGET, "--env-arg", "seed=3"), "`--env-seed`"),
        ((*WORLD, *BUDGET, "--env-arg", "stages=3"), "no argument `stages`"),
        (("fit", "env:riverswim", "--recipe", "dp-apvi", *BUDGET), "`--episodes`"),
        (("fit", "env:riverswin", "--recipe", "dp-apvi", "--episodes", "5", *BUDGET), "`riverswim`"),
        (("fit", "env:riverswim", "--recipe", "dp-apvy", "--episodes", "5", *BUDGET), "`dp-apvi`"),
        (("fit", "env:riverswim", "--recipe", "apvi", "--episodes", "5", *BUDGET), "takes no budget"),
        (("fit", "env:riverswim", "--recipe", "dp-ucbvi", "--episodes", "5", *BUDGET), "privrl run dp-ucbvi"),
        (("fit", "missing.parquet", *TABLE, *BUDGET), "There is no file"),
        (("fit", "{table}", *TABLE, *BUDGET, "--episodes", "5"), "`--episodes` only makes sense"),
        (("fit", "{table}", "--recipe", "dp-apvi", *BUDGET, *COLUMNS), "`--horizon`, `--num-states`"),
        (("fit", "{table}", "--recipe", "dp-apvi", *BUDGET, *RENAMED, *SIZES), "condition"),
        (("fit", "{table}", *TABLE, *BUDGET, "--store-log", "h"), "`--store` is missing"),
        ((*WORLD, *BUDGET, "--store-log", "h"), "`--store-log` keeps the releases of real people"),
        (("fit", "{table}", *SMALL, *BUDGET, "--horizon", "4", "--num-states", "2"), "Column `state` is"),
        (("fit", "{table}", *SMALL, *BUDGET, "--horizon", "2", "--num-states", "3"), "horizon"),
        (("fit", "{table}", *SMALL, *BUDGET, "--horizon", "0", "--num-states", "3"), "`--horizon` is 0"),
        (("fit", "{table}", *TABLE, *BUDGET, "--epsilon", "3"), "`--epsilon` was given 2 times"),
        (("fit", "{table}", *TABLE, *BUDGET, "--overwrite", "--overwrite"), "`--overwrite` was given 2 times"),
        (("serve", "run", "a.toml", "--listen", "x:1", "--listen=x:2"), "`--listen` was given 2 times"),
        (("schema", "check", "a.toml", "--json", "--json"), "`--json` was given 2 times"),
        ((*ONLINE,), "needs a budget"),
        (("run", "dp-lsvi-ucb++@paper", *ONLINE[2:], "--epsilon", "1"), "`--epsilon` with `--delta`"),
        ((*ONLINE, *BUDGET, "--seeds", "0"), "at least 1"),
        ((*ONLINE, *BUDGET, "--plot", "curve.gif"), ".png"),
        ((*ONLINE, *BUDGET, "--plot", "nowhere/curve.png"), "nowhere"),
        (("run", "dp-apvi", "--env", "riverswim", "--episodes", "5", *BUDGET), "privrl fit DATA --recipe dp-apvi"),
        (("run", "dp-ucbvi", "--env", "lake", "--episodes", "5", *BUDGET), "no environment `lake`"),
        (("run", "dp-ucbvi", "--env", "riverswim", *BUDGET), "--episodes"),
        (("cite", "dp-apvy"), "`dp-apvi`"),
        (("list", "planets"), "planets"),
        (("demo", "--epsilon", "-1", "--quick"), "`epsilon`"),
        (("demo", "--seeds", "0"), "`seeds` is 0"),
        (("audit", "dp-apvi", "--all"), "one recipe"),
        (("audit", "dp-apvii"), "dp-apvi"),
    ],
)
def test_bad_input_is_refused_clearly_and_leaves_nothing(
    arguments: tuple[str, ...],
    complaint: str,
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")  # usage errors are not broken into lines
    filled = [argument.format(table=table) for argument in arguments]
    called = call(*filled, *(("--out", tmp_path / "out") if filled[0] in ("fit", "demo") else ()))
    assert called.code == 2, called.err
    assert complaint in called.err
    assert called.out == "" or ("--json" in filled and set(json.loads(called.out)) == {"error"})
    assert "Traceback" not in called.err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_other_things_is_refused_before_anything_is_learned(table: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    for arguments in (("fit", table, *TABLE, *BUDGET), ("demo",)):
        called = call(*arguments, "--out", tmp_path)
        assert called.code == 2 and "holds other files" in called.err
    called = call("fit", table, *TABLE, *BUDGET, "--out", tmp_path / "thesis.txt" / "policy")
    assert called.code == 2 and "cannot be written" in called.err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_table_without_a_place_to_save_is_refused(table: Path) -> None:
    called = call("fit", table, *TABLE, *BUDGET)
    assert called.code == 2 and "`--out`" in called.err


def test_an_earlier_result_is_replaced_on_request(table: Path, tmp_path: Path) -> None:
    arguments = ("fit", table, *TABLE, *BUDGET, "--out", tmp_path / "policy")
    assert [call(*arguments, *more).code for more in ((), (), ("--overwrite",))] == [0, 2, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


def test_a_failure_has_its_own_exit_code_and_shows_no_values(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*arguments: Any, **options: Any) -> None:
        record = "a person's secret"  # noqa: F841
        raise RuntimeError("out of luck")

    monkeypatch.setattr(privrl, "fit", broken)
    called = call(*WORLD, *BUDGET, "--out", tmp_path / "out")
    assert called.code == 1
    assert "RuntimeError" in called.err and "Traceback" not in called.err and "out of luck" not in called.err
    monkeypatch.setenv("PRIVRL_TRACEBACK", "1")
    traced = call(*WORLD, *BUDGET, "--out", tmp_path / "out")
    assert "Traceback" in traced.err and "secret" not in traced.err.replace('record = "a person\'s secret"', "")
    assert list(tmp_path.iterdir()) == []


# -------------------------------------------------------------------------------------------- list, cite, help


def test_list_names_everything() -> None:
    listed = call("list", "recipes", "--json").json()["recipes"]
    assert [entry["name"] for entry in listed] == list(recipes)
    assert all(entry["summary"] for entry in listed)
    envs = call("list", "envs", "--json").json()["envs"]
    assert {"riverswim", "icu-sepsis", "gym:<id>"} <= {entry["name"] for entry in envs}
    listed = {figure["name"] for figure in call("list", "figures", "--json").json()["figures"]}
    assert {"sahu-fig1a", "liao-he-gu-fig2b", "qiao-wang-fig1a", "wang-hegde-fig1", "frontier-lq"} <= listed
    assert "ldp-ucbvi" in call("list", "recipes").out


def test_without_a_recipe_privrl_is_cited() -> None:
    assert call("cite", "--json").json()["keys"] == ["privrl"]
    assert call("cite").out.startswith("@software{privrl,")


@pytest.mark.parametrize("name", recipes)
def test_every_recipe_has_something_to_cite(name: str) -> None:
    content = call("cite", name, "--json").json()
    entries = content["bibtex"].split("\n\n")
    assert len(entries) == len(content["keys"]) >= 1
    for key, entry in zip(content["keys"], entries, strict=True):
        assert entry.split("{")[1].startswith(f"{key},")
        assert entry.count("{") == entry.count("}")


def test_citations_follow_the_learner_and_the_privatizer() -> None:
    from privrl.recipes.citations import citation, citation_keys

    assert citation_keys("apvi") == ("qiao-wang",)
    assert citation_keys(privrl.APVI, privrl.Central(epsilon=1.0, delta=1e-6)) == citation_keys("dp-apvi")
    assert "warner" in citation_keys(privrl.UCBVI, privrl.Local(epsilon=1.0))
    assert "Dan Qiao and Yu-Xiang Wang" in citation("dp-apvi")


def test_help_has_examples_and_every_option_is_explained() -> None:
    shown = call("--help")
    assert shown.code == 0 and "privrl report policy" in shown.out
    for name, command in root(loaded=True).commands.items():
        assert command.help, name
        assert [parameter.name for parameter in command.params if not getattr(parameter, "help", None)] == []


def test_every_command_refuses_options_that_are_given_twice() -> None:
    """Of all commands, also those below groups: the class is the one place that refuses."""
    waiting, seen = [root(loaded=True)], 0
    while waiting:
        for command in waiting.pop().commands.values():
            if isinstance(command, TyperGroup):
                waiting.append(command)
            else:
                assert isinstance(command, Command), command.name
                seen += 1
    assert seen > 25


def test_without_arguments_the_commands_of_a_first_day_come_first() -> None:
    shown = call()
    text = shown.out + shown.err
    places = [text.index(panel) for panel in ("First day", "Studies", "Service", "Research")]
    assert places == sorted(places) and text.index(" demo ") < text.index(" audit ")


def test_version() -> None:
    called = call("--version")
    assert (called.code, called.out.strip()) == (0, f"privrl {privrl.__version__}")


def test_json_is_alone_on_standard_output_in_a_process_of_its_own(table: Path, tmp_path: Path) -> None:
    program = "import sys; from privrl.cli import main; sys.exit(main())"
    arguments = ["fit", str(table), *TABLE, *BUDGET, "--seed", "1", "--out", str(tmp_path / "policy"), "--json"]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["recipe"] == "dp-apvi"
    assert done.stdout.count("\n") == 1
    assert "Warning" in done.stderr


SEVERAL = (*COLUMNS, *SIZES, "--max-episodes-per-unit", "2")


def test_what_fit_does_silently_is_said(table: Path, tmp_path: Path) -> None:
    arguments = ("fit", table, "--recipe", "dp-apvi", *BUDGET, *SEVERAL, "--unit-noun", "patient")
    (tmp_path / "states.txt").write_text("calm\nshaky\n")
    texts = ("--state-names", tmp_path / "states.txt", "--purpose", "a trial")
    called = call(*arguments, *texts, "--out", tmp_path / "out")
    assert called.code == 0 and "Of each patient the first 2 episodes in the table are used" in called.out
    assert "stated      purpose: a trial" in called.out
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["names"] == {"states": ["calm", "shaky"]} and len(report["rules"]) == 1
    assert call("report", tmp_path / "out", "--out", tmp_path / "page.html").code == 0
    page = (tmp_path / "page.html").read_text()
    assert "calm" in page and "a trial" in page and "the first 2 episodes" in page
    assert call(*arguments, "--purpose", " ", "--out", tmp_path / "none").code == 2


def test_terminal_states_need_a_column_that_can_hold_them(table: Path, tmp_path: Path) -> None:
    columns = tuple(column for column in COLUMNS if "next-state" not in column)
    arguments = ("fit", table, "--recipe", "dp-apvi", *BUDGET, *columns, *SIZES, "--max-episodes-per-unit", "2")
    called = call(*arguments, "--terminal", "2", "--out", tmp_path / "out")
    assert called.code == 2 and "`--next-state`" in called.err and not (tmp_path / "out").exists()
    said = call(*arguments, "--out", tmp_path / "out")
    assert said.code == 0 and "There is no column of next states" in said.out


@pytest.mark.parametrize("recipe", ["dp-tdfp", "dp-tap"])
def test_rewards_at_the_end_without_ends_name_an_option(table: Path, tmp_path: Path, recipe: str) -> None:
    arguments = ("fit", table, "--recipe", recipe, *BUDGET, *SEVERAL, "--rewards-at-end", "--out", tmp_path / "out")
    called = call(*arguments)
    assert called.code == 2 and "`--terminal`" in called.err and "`--rewards-at-end`" in called.err, called.err


def test_rescaled_rewards_are_said() -> None:
    arguments = ("--env-arg", "horizon=2", "--recipe", "dp-apvi", *BUDGET, "--episodes", "20", "--seed", "1")
    rules = call("fit", "env:gym:CliffWalking-v1", *arguments, "--json").json()["rules"]
    assert "between -100 and 0" in rules[0] and "rescaled to [0, 1]" in rules[0]
