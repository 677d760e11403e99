"""The first tier covers every command and every package, with tests that exist and are quick."""

import ast
from pathlib import Path

from tiers import COMMANDS, FIRST, PACKAGES

from privrl.cli.main import root

ROOT = Path(__file__).parents[1]


def test_every_command_and_package_is_in_the_first_tier() -> None:
    packages = {path.parent.name for path in (ROOT / "src" / "privrl").glob("*/__init__.py")}
    assert set(COMMANDS) == set(root().commands)
    assert set(PACKAGES) == packages
    for file, names in _tests_by_file().items():
        tree = ast.parse((ROOT / "tests" / file).read_text())
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        for name in names:
            marks = [ast.unparse(mark) for mark in functions[name].decorator_list]
            assert "pytest.mark.slow" not in marks, f"{file}::{name} is slow, so `make test` leaves it out"


def _tests_by_file() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for test in FIRST:
        file, _, name = test.partition("::")
        found.setdefault(file, []).append(name)
    return found
