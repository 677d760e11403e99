"""Breaks the privacy of a copy of privrl, one line at a time, and checks that the test named for it fails."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from chromium import MISSING, program
from mutations import ALL, BROWSER, Mutation

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.parametrize("mutation", ALL, ids=lambda m: m.name.replace(" ", "-"))
def test_the_first_tier_notices(mutation: Mutation, tmp_path: Path) -> None:
    if mutation in BROWSER and (shutil.which("node") is None or program() is None):
        pytest.skip(MISSING)
    package = tmp_path / "privrl"
    shutil.copytree(ROOT / "src" / "privrl", package, ignore=shutil.ignore_patterns("__pycache__"))
    mutation.apply(package)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "first"]
    done = subprocess.run(
        [*command, f"tests/{mutation.test}"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 1, f"No test noticed: {mutation.name}.\n{done.stdout[-2000:]}"
    assert " failed" in done.stdout


def test_the_list_is_up_to_date(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "mutations.md").read_text()
    for mutation in ALL:
        file, _, name = mutation.test.partition("::")
        assert f"| {mutation.name} | `{mutation.file}` | `{file}`: `{name}` |" in page
        assert f"def {name}(" in (ROOT / "tests" / file).read_text()
        (tmp_path / mutation.file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "src" / "privrl" / mutation.file, tmp_path / mutation.file)
        before = (tmp_path / mutation.file).read_text()
        mutation.apply(tmp_path)
        assert (tmp_path / mutation.file).read_text() != before


def test_no_mutation_is_dropped() -> None:
    assert len({mutation.name for mutation in ALL}) == len(ALL) >= 125
