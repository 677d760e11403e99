"""Every script in `examples/` runs from start to end at toy size, from a folder of its own."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_there_are_examples() -> None:
    assert {"offline.py", "online.py", "local.py", "audit.py"} <= {path.name for path in EXAMPLES}


# `online.py` does what its guide does, whose code `test_docs.py` runs; `audit.py` and `local.py` likewise.
MANY = ("online.py", "audit.py", "local.py")


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=pytest.mark.slow) if path.name in MANY else path for path in EXAMPLES],
    ids=lambda path: path.name,
)
def test_example_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRIVRL_TOY", "1")
    monkeypatch.setattr(sys, "argv", [str(path)])
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip(), f"{path.name} printed nothing"


@pytest.mark.slow
def test_an_example_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "offline.py")],
        cwd=tmp_path,
        env={**os.environ, "PRIVRL_TOY": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.ipynb")), ids=lambda path: path.name)
def test_a_notebook_runs_cell_by_cell(path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    names: dict[str, object] = {}
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            assert not cell["outputs"], "notebooks are kept without outputs"
            exec(compile("".join(cell["source"]), path.name, "exec"), names)
