"""Runs what the documentation shows: every `python` block, and the commands of `console` blocks marked to run.

Blocks of one page run in order, in one namespace and one empty folder, at toy size. `<!-- no-run -->` on the line
before a `python` block leaves it out. `<!-- run -->` on the line before a `console` block takes in its lines that call
`privrl` or a script of `examples/`. `<!-- file NAME -->` writes a block to a file.
"""

import random
import re
import runpy
import shlex
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_cli import call

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, first line number, text, and the comment on the line before it."""

    language: str
    line: int
    text: str
    mark: str


def blocks(page: str) -> list[Block]:
    """All fenced blocks of a page."""
    found = []
    lines = page.splitlines()
    start, language = -1, ""
    for number, line in enumerate(lines):
        fence = re.fullmatch(r"```(\w*)\s*", line)
        if start < 0 and fence:
            start, language = number, fence[1]
        elif start >= 0 and fence and not fence[1]:
            mark = re.fullmatch(r"<!--\s*(.*?)\s*-->", lines[start - 1].strip()) if start else None
            text = "\n".join(lines[start + 1 : number]) + "\n"
            found.append(Block(language, start + 2, text, mark[1] if mark else ""))
            start = -1
    if start >= 0:
        raise ValueError(f"The block that opens on line {start + 1} is never closed.")
    return found


def commands(console: str) -> list[list[str]]:
    """The arguments of each `$ privrl` line, continuation lines joined."""
    joined = re.sub(r"\\\n\s*", " ", console)
    return [shlex.split(line, comments=True)[2:] for line in joined.splitlines() if line.startswith("$ privrl")]


def run_python(block: Block, page: Path, namespace: dict[str, object]) -> None:
    # Empty lines in front, so that a traceback points at the line of the page.
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    exec(code, namespace)


def run_console(block: Block, page: Path) -> None:
    for script in re.findall(r"^\$ python (examples/\w+\.py)$", block.text, flags=re.MULTILINE):
        runpy.run_path(str(ROOT / script), run_name="__main__")
    for arguments in commands(block.text):
        toy = ("--spend-anyway",) if "--evaluate" in arguments else ()  # too few people to release anything
        called = call(*arguments, *toy)
        assert called.code == 0, f"{page.name}:{block.line}: privrl {shlex.join(arguments)}\n{called.err}"


WITH_A_TABLE = {"README.md", "docs/guides/budgets.md", "docs/guides/offline.md", "docs/guides/stores.md"}
SCHEMA = """\
unit = "patient_id"
step = "step"
state = "state"
action = "action"
reward = "reward"
horizon = 3
num_states = 3
num_actions = 2
"""


def write_stays(folder: Path) -> None:
    """The table and the schema that pages begin with: 40 patients in a world of three states and two actions."""
    rng = random.Random(0)
    rows = [
        {"patient_id": patient, "step": step, "state": rng.randrange(3), "action": rng.randrange(2), "reward": 0.5}
        for patient in range(40)
        for step in range(3)
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "stays.parquet")
    (folder / "stays.toml").write_text(SCHEMA)


RUN = [pytest.param(PAGES[0], marks=pytest.mark.smoke), *PAGES[1:]]  # the README is in the first tier


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRIVRL_TOY", "1")
    if page.relative_to(ROOT).as_posix() in WITH_A_TABLE:
        write_stays(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page.read_text()):
        if block.language == "python" and block.mark != "no-run":
            run_python(block, page, namespace)
        elif block.language == "console" and block.mark == "run":
            run_console(block, page)
        elif block.mark.startswith("file "):
            Path(block.mark.removeprefix("file ")).write_text(block.text)


def test_readme_has_an_example_that_runs() -> None:
    shown = blocks((ROOT / "README.md").read_text())
    assert any(block.language == "python" and block.mark != "no-run" for block in shown)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_to_files_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    missing = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert missing == []


PAGE = """\
<!-- no-run -->
```python
raise AssertionError
```
text
```python
x = 1
```
<!-- run -->
```console
$ privrl fit data \\
    --epsilon 1  # a comment
output
$ ls
```
"""


def test_blocks_are_found_with_their_marks() -> None:
    skipped, run, console = blocks(PAGE)
    assert (skipped.language, skipped.mark, skipped.line) == ("python", "no-run", 3)
    assert (run.language, run.mark, run.text) == ("python", "", "x = 1\n")
    assert console.mark == "run"
    assert commands(console.text) == [["fit", "data", "--epsilon", "1"]]


def test_unclosed_block_is_an_error() -> None:
    with pytest.raises(ValueError, match="never closed"):
        blocks("```python\nx = 1\n")
