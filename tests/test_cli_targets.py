"""Every command that writes refuses an existing target without `--overwrite`, an input always, and what it cannot write
before it spends anything; a result that was paid for is kept."""

import ast
import errno
import os
import re
from pathlib import Path
from typing import Any

import jax
import pytest
from test_cli import BUDGET, COLUMNS, SIZES, call

import privrl
from privrl import writing
from privrl.cli.main import root
from privrl.cli.options.targets import TARGETS, save
from privrl.studies.results.certified_evaluation import load_evaluation

CLI = Path(privrl.cli.__file__).parent
PREPARE = (
    "--unit",
    "id",
    "--time",
    "t",
    "--every",
    "1h",
    "--last",
    "x",
    "--action",
    "a",
    "--reward",
    "r",
    "--good",
    "high",
)
FIT = ("--recipe", "dp-apvi", *BUDGET, *COLUMNS, *SIZES)
RUN = ("run", "dp-ucbvi", "--env", "riverswim", "--episodes", "10", *BUDGET)
# A command that writes, and what it writes; every one of them is refused where that exists.
COMMANDS = {
    "prepare": (("prepare", "raw.csv", "old.parquet", *PREPARE), "old.parquet"),
    "shard": (("shard", "table.parquet", "parts", "--unit", "id", "--files", "1"), "parts/part-00000.parquet"),
    "lookalike": (("lookalike", "s.toml", "--people", "9", "--out", "old.parquet"), "old.parquet"),
    "schema init": (("schema", "init", "table.parquet", "--out", "s.toml"), "s.toml"),
    "fit": (("fit", "table.parquet", *FIT, "--out", "policy"), "policy/certificate.json"),
    "evaluate": (("evaluate", "table.parquet", "p.npz", *BUDGET, "--out", "policy"), "policy/evaluation.json"),
    "run": ((*RUN, "--plot", "old.svg"), "old.svg"),
    "audit": (("audit", "dp-apvi", "--out", "audit"), "audit/audit.svg"),
    "report": (("report", "audit", "--out", "old.html"), "old.html"),
    "demo": (("demo", "--out", "demo"), "demo/values.json"),
    "pilot init": (("pilot", "init", "policy", "--people", "9", *BUDGET, "--out", "pilot.toml"), "pilot.toml"),
    "serve client": (("serve", "client", "web"), "web/package.json"),
}
NO_OVERWRITE = {"reproduce"}  # it completes a folder of the same figure, and refuses every other one


def commands(group: Any, before: str = "") -> dict[str, Any]:
    found = {}
    for name, command in group.commands.items():
        found |= commands(command, f"{before}{name} ") if hasattr(command, "commands") else {f"{before}{name}": command}
    return found


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a target of every command and small inputs, none of which is valid."""
    monkeypatch.chdir(tmp_path)
    for _, target in COMMANDS.values():
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).write_text("years of work")
    for name in ("raw.csv", "table.parquet", "p.npz"):
        Path(name).write_text("records")
    Path("audit/audit.json").write_text('{"audits": []}')
    return tmp_path


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "people.parquet"
    world = privrl.envs.make("riverswim", states=3, horizon=4)
    privrl.data.write_parquet(path, world.sample(world.behaviour_policy(), 300, jax.random.key(0)))
    return path


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_all_commands_that_write_are_here() -> None:
    found = {
        name: {parameter.name for parameter in command.params} for name, command in commands(root(loaded=True)).items()
    }
    writing_ones = {name for name, parameters in found.items() if parameters & set(TARGETS)}
    assert writing_ones == set(COMMANDS) | NO_OVERWRITE
    assert {name for name in writing_ones if "overwrite" not in found[name]} == NO_OVERWRITE
    assert {name for name, parameters in found.items() if "overwrite" in parameters} == set(COMMANDS)


def test_commands_write_through_one_module() -> None:
    """What writes to a path is called on what `whole_file` or `whole_folder` gives, and on nothing else."""
    writers = ("write_text", "write_bytes", "open", "touch", "savefig", "write_csv", "write_table")
    found = [
        f"{path.name}: {ast.unparse(node)}"
        for path in sorted(CLI.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in writers
        if not re.match(r"(scratch|file)\b|\(scratch / |.*\.keys\.open$", ast.unparse(node.func))
    ]
    assert found == []


@pytest.mark.parametrize("name", COMMANDS)
def test_an_existing_target_is_refused(name: str, here: Path) -> None:
    before = content(here)
    called = call(*COMMANDS[name][0])
    assert called.code == 2 and called.out == ""
    assert "exists already" in called.err and "`--overwrite`" in called.err
    assert content(here) == before


@pytest.mark.parametrize("name", COMMANDS)
def test_a_target_that_cannot_be_written_is_refused_first(
    name: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `--overwrite` too; inputs are invalid, so a command that looks at them first complains about them."""

    def refused(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("tempfile.mkdtemp", refused)
    before = content(here)
    called = call(*COMMANDS[name][0], "--overwrite")
    assert called.code == 2 and "Read-only file system" in called.err
    assert content(here) == before


@pytest.mark.parametrize("out", ["loop", "a" * 300], ids=["loop", "long"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_name_that_leads_nowhere_is_refused_first(name: str, out: str, here: Path) -> None:
    """A link to itself looks like a name that is free, until the result is moved there."""
    arguments, target = COMMANDS[name]
    old = target if target in arguments else target.partition("/")[0]
    new = f"{out}{Path(old).suffix}"
    if out == "loop":
        Path(new).symlink_to(new)
    called = call(*(new if one == old and i > 1 else one for i, one in enumerate(arguments)))
    words = "Too many levels of symbolic links" if out == "loop" else "File name too long"
    assert called.code == 2 and called.out == "" and words in called.err, called.err


def test_a_link_into_a_missing_folder_is_refused_first(here: Path) -> None:
    Path("link.parquet").symlink_to("missing/steps.parquet")
    called = call("prepare", "raw.csv", "link.parquet", *PREPARE)
    assert called.code == 2 and "there is no folder" in called.err


@pytest.mark.parametrize("link", ["same", "soft", "hard"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("prepare", "in.parquet", "{}.parquet", *PREPARE),
        ("lookalike", "in.parquet", "--people", "9", "--out", "{}.parquet"),
        ("schema", "init", "in.parquet", "--out", "{}.parquet"),
        (*RUN, "--dask-ca", "in.svg", "--plot", "{}.svg"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_an_input_is_never_replaced(
    arguments: tuple[str, ...], link: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for ending in ("parquet", "svg"):
        source = Path(f"in.{ending}")
        source.write_text("records")
        Path(f"soft.{ending}").symlink_to(source)
        Path(f"hard.{ending}").hardlink_to(source)
    called = call(*(word.format("in" if link == "same" else link) for word in arguments), "--overwrite")
    assert called.code == 2 and "would be lost" in called.err
    assert all(text == b"records" for text in content(tmp_path).values()) and len(content(tmp_path)) == 6


def test_folders_that_hold_an_input_are_refused(here: Path) -> None:
    Path("in").mkdir()
    Path("in/part-00000.parquet").write_text("records")
    before = content(here)
    shard = ("--unit", "id", "--files", "1", "--overwrite")
    for words in (
        ("shard", "in", "in", *shard),
        ("shard", "in/part-*.parquet", "in", *shard),
        ("shard", "in", "in/new", *shard),
        ("fit", "table.parquet", *FIT, "--store", "new", "--out", "new"),
        ("fit", "table.parquet", *FIT, "--store", "policy/certificate.json", "--out", "policy", "--overwrite"),
        ("report", "audit", "--out", "audit/page.html"),
    ):
        called = call(*words)
        assert called.code == 2 and ("would be lost" in called.err or "inside the input" in called.err), words
    assert content(here) == before


def test_overwriting_replaces_and_removes_the_old(here: Path) -> None:
    Path("old.svg").write_text("an earlier plot")
    assert call(*RUN, "--plot", "old.svg", "--overwrite").code == 0
    assert Path("old.svg").read_text().lstrip().startswith("<?xml")
    assert not [path for path in here.iterdir() if path.name.startswith(".")]


def test_a_result_that_was_paid_for_is_kept_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk became full, or the target was taken, while the command was learning."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere").mkdir()

    def write(target: Path) -> None:
        if "elsewhere" not in target.parts:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        target.write_text("result")

    with pytest.raises(writing.NotMovedError, match="No space left") as caught:
        save(tmp_path / "policy", write)
    (kept,) = (tmp_path / "elsewhere").rglob("policy")
    assert kept.read_text() == "result" and f"`{kept}`" in str(caught.value)


@pytest.mark.parametrize("command", ["fit", "evaluate"])
def test_a_move_that_fails_loses_neither_result(
    command: str, people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fit = ("fit", people, *FIT, "--seed", "1", "--out", "policy")
    assert call(*fit).code == 0
    words: tuple[str | Path, ...] = (*fit, "--overwrite")
    if command == "evaluate":
        words = (
            "evaluate",
            people,
            "policy",
            "--spend-anyway",
            *BUDGET,
            "--seed",
            "1",
            "--unit",
            "unit_id",
            "--out",
            "own",
        )
    before = content(Path("policy"))
    moves = {"rename": os.rename, "replace": os.replace}

    class Failing:
        def __init__(self, how: str) -> None:
            self.how, self.left = how, 1

        def __call__(self, source: Any, to: Any, **options: Any) -> None:
            wanted = Path(to).name in ("policy", "own")
            if wanted and self.left:
                self.left -= 1
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
            moves[self.how](source, to, **options)

    for how in moves:
        monkeypatch.setattr(os, how, Failing(how))
    called = call(*words)
    assert called.code == 1 and "It is kept in `" in called.err
    kept = Path(called.err.split("It is kept in `")[1].split("`")[0])
    assert kept.exists()
    assert content(Path("policy")) == before
    if command == "fit":
        assert privrl.Result.load(kept).policy is not None
    else:
        assert load_evaluation(kept).people == 300
