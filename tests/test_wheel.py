"""privrl installs like any package: what `python -m build` does, then an empty virtual environment, then the demo.

No download is needed: the backend of the build is the one installed here, and the new environment gets links to the
distributions that the wheel's metadata asks for, each with what it asks for itself, and to nothing else. What privrl
needs and does not declare is therefore missing there, and pip refuses the wheel where a declared version is.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
SOURCE = ["src", "pyproject.toml", "README.md", "LICENSE", "NOTICE"]
SDIST = "from setuptools import build_meta; build_meta.build_sdist('dist')"


def required(lines: list[str], extras: frozenset[str] = frozenset()) -> Iterator[Requirement]:
    """The requirements among `Requires-Dist` lines that hold here with these extras."""
    for requirement in map(Requirement, lines):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras | {""}):
            yield requirement


def closure(lines: list[str]) -> dict[str, metadata.Distribution]:
    """The installed distributions that these lines ask for, with what those ask for in turn."""
    found: dict[str, metadata.Distribution] = {}
    todo, seen = list(required(lines)), set()
    while todo:
        requirement = todo.pop()
        extras = frozenset(requirement.extras)
        if (asked := (requirement.name.lower(), extras)) in seen:
            continue
        seen.add(asked)
        found[asked[0]] = distribution = metadata.distribution(requirement.name)
        todo += required(distribution.requires or [], extras)
    return found


def run(*command: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "XLA_FLAGS")}
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(folder: Path) -> Path:
    """A wheel from a source distribution from a copy of the source, as `python -m build` makes it."""
    folder.mkdir()
    for name in SOURCE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(ROOT / name, folder)
    run(sys.executable, "-c", SDIST, cwd=folder)
    (source,) = (folder / "dist").glob("*.tar.gz")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", "dist"]
    run(sys.executable, "-m", "pip", "wheel", *options, source, cwd=folder)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


@pytest.mark.slow
def test_a_wheel_installs_into_an_empty_environment_and_runs_the_demo(tmp_path: Path) -> None:
    wheel = build(tmp_path / "source")
    with zipfile.ZipFile(wheel) as archive:
        files = {re.sub(r"^privrl-[^/]*\.dist-info/", "", name): name for name in archive.namelist()}
        assert {
            "privrl/py.typed",
            "privrl/envs/tabular/icu_sepsis.npz",
            "privrl/envs/patients/glucose_day.csv",
            "privrl/reports/templates/page.html",
            "privrl/service/templates/operator.html",
            "licenses/LICENSE",
            "licenses/NOTICE",
        } <= set(files)
        assert not [name for name in files if name.startswith(("tests", "bench", "docs"))]
        assert b"Copyright (c) 2024 Kartik Choudhary" in archive.read(files["licenses/NOTICE"])
        described = metadata.PathDistribution(zipfile.Path(archive, files["METADATA"].removesuffix("METADATA")))
        dependencies = [line for line in described.requires or [] if "extra ==" not in line]
        ours = closure(dependencies)
    assert wheel.stat().st_size < 2 * 2**20
    assert "icu-sepsis" not in ours and "pytest" not in ours

    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    installed = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    for distribution in ours.values():
        for top in {file.parts[0] for file in distribution.files or [] if file.parts[0] not in ("..", "__pycache__")}:
            if not (installed / top).exists():
                (installed / top).symlink_to(Path(str(distribution.locate_file(top))))
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", wheel, cwd=tmp_path)

    where = run(python, "-c", "import privrl; print(privrl.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(installed)
    shown = json.loads(run(python.with_name("privrl"), "demo", "--quick", "--out", "demo", "--json", cwd=tmp_path))
    assert shown and (tmp_path / "demo" / "report.html").stat().st_size > 10_000
