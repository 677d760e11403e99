"""What a visitor relies on before any code runs: pins, versions, the change log, a quick import."""

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PINS = ["requirements.txt", "requirements-dev.txt", "requirements-docs.txt", "requirements-serve.txt"]
PIN = re.compile(r"[a-z0-9][a-z0-9.-]*==\S+(?: ; [^\\]+)?(?: --hash=sha256:[0-9a-f]{64})+")


def pins(name: str) -> list[str]:
    """The logical lines of a pin file, without comments."""
    text = (ROOT / name).read_text().replace("\\\n", " ")
    lines = (re.sub(r"\s+", " ", line).strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[=<>!~;\[ ]", requirement, maxsplit=1)[0].lower() for requirement in requirements}


@pytest.mark.parametrize("name", PINS)
def test_pin_files_hold_only_pins_with_hashes(name: str) -> None:
    lines = pins(name)
    assert lines
    assert [line for line in lines if not PIN.fullmatch(line)] == []


@pytest.mark.parametrize("name", PINS)
def test_pin_files_name_no_address(name: str) -> None:
    text = (ROOT / name).read_text()
    assert not re.search(r"://|--(extra-)?index|--find-links|--trusted-host|@ ?file", text)


def test_pins_cover_what_the_project_declares() -> None:
    runtime = names(pins("requirements.txt"))
    assert names(project()["dependencies"]) <= runtime
    assert names(project()["optional-dependencies"]["dev"]) | runtime <= names(pins("requirements-dev.txt"))


def test_development_pins_agree_with_runtime_pins() -> None:
    def versions(name: str) -> set[str]:
        return {line.split(" ")[0] for line in pins(name)}

    assert versions("requirements.txt") <= versions("requirements-dev.txt")


def test_the_container_gets_the_same_pins_without_plots_and_parquet() -> None:
    parts = project()["optional-dependencies"]
    needed = names(project()["dependencies"] + parts["serve"] + parts["postgres"]) - {"matplotlib", "pyarrow"}
    found = pins("requirements-serve.txt")
    assert needed | {"setuptools"} <= names(found) and set(found) <= set(pins("requirements-dev.txt"))
    todo, reached = sorted(needed | {"setuptools", "psycopg-binary"}), set()
    while todo:  # all that these need here, and nothing else
        one = todo.pop()
        if one not in reached:
            reached.add(one)
            others = (Requirement(text) for text in importlib.metadata.requires(one) or [])
            todo += [
                canonicalize_name(it.name) for it in others if it.marker is None or it.marker.evaluate({"extra": ""})
            ]
    assert names(found) == reached


def test_no_accelerator_packages_are_pinned() -> None:
    assert not {name for name in names(pins("requirements-dev.txt")) if re.search(r"torch|cuda|nvidia|rocm", name)}


def test_version_is_said_once() -> None:
    import privrl

    assert privrl.__version__ == project()["version"]


def test_changelog_has_this_version_and_a_privacy_section() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(r"^#+ Privacy\b", text, flags=re.MULTILINE)
    assert project()["version"] in text


def test_contributing_fits_on_a_screen() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text().splitlines()) <= 60


def test_no_hint_breaks_the_checks_of_types_at_run_time() -> None:
    """`make test-slow` decorates functions one by one; `typing.Self` has a meaning inside decorated classes only."""
    using = [str(path) for path in (ROOT / "src").rglob("*.py") if re.search(r"\bSelf\b", path.read_text())]
    assert using == [], "name the class in quotes instead of `Self`"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 500
