"""The documentation site: complete, linked, and free of commands, names and figures that do not exist."""

import ast
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from test_docs import blocks, commands

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
PLACEHOLDER = re.compile(r"\.\.\.|[A-Z]+")  # `privrl run RECIPE --episodes K ...` stands for many commands


def script(name: str) -> ModuleType:
    """A script beside the pages, which are no package."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with a folder of its own to keep verdicts in."""
    module = script("evidence")
    monkeypatch.setattr(module, "EVIDENCE", tmp_path / "evidence")
    return module


# ------------------------------------------------------------------------------------------------ pages and links


def navigation() -> list[str]:
    """The pages that mkdocs.yml names, with the verdicts that the hook adds."""
    named = re.findall(r"^ +- .+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE)
    return named + [path.relative_to(DOCS).as_posix() for path in script("evidence").verdicts()]


def test_every_page_is_in_the_navigation_once() -> None:
    assert sorted(navigation()) == [page.relative_to(DOCS).as_posix() for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_links_stay_inside_the_site_and_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
    lost = [
        t for t in targets if not (page.parent / t).resolve().is_relative_to(DOCS) or not (page.parent / t).exists()
    ]
    assert lost == []


def anchors(page: Path) -> set[str]:
    """The anchors that mkdocs gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


def test_the_source_refers_to_pages_and_sections_that_exist() -> None:
    """Docstrings name the page of the proof that they rely on."""
    lost = []
    for module in [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").rglob("*.py")]:
        for name, anchor in re.findall(r"\b(docs/[\w/-]+\.md)(?:#([\w-]+))?", module.read_text()):
            page = ROOT / name
            if not page.exists() or (anchor and anchor not in anchors(page)):
                lost.append(f"{module.relative_to(ROOT)}: {name}#{anchor}")
    assert lost == []


def test_sections_that_pages_link_to_exist() -> None:
    lost = []
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([\w./-]*\.md)?#([\w-]+)\)", page.read_text()):
            if anchor not in anchors((page.parent / target) if target else page):
                lost.append(f"{page.relative_to(DOCS)}: {target}#{anchor}")
    assert lost == []


def test_the_site_asks_for_nothing_from_elsewhere() -> None:
    settings = (ROOT / "mkdocs.yml").read_text()
    assert "font: false" in settings
    assert not re.search(r"https?:|repo_url|extra_javascript|analytics", settings)
    assert not re.search(r"url\(|@import", (DOCS / "site.css").read_text())


def test_the_example_of_the_home_page_is_one_that_runs_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    shown = [block.text for block in blocks((DOCS / "index.md").read_text()) if block.language == "python"]
    assert shown and all(text in readme for text in shown)


# --------------------------------------------------------------------------------------------------- commands


def shown_commands() -> list[tuple[str, tuple[str, ...]]]:
    """Every `privrl` command of the README and the pages, in blocks and in the running text."""
    found = []
    for page in (ROOT / "README.md", *PAGES):
        text = page.read_text()
        lines = [c for block in blocks(text) if block.language == "console" for c in commands(block.text)]
        running = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        lines += [code.split()[1:] for code in re.findall(r"`(privrl [^`]+)`", running)]
        found += [(page.relative_to(ROOT).as_posix(), tuple(line)) for line in lines]
    return sorted(set(found))


def check_command(arguments: list[str]) -> None:
    """The command exists and takes these options; where nothing stands for something else, all of it parses."""
    from privrl.cli.main import root

    command: Any = root(loaded=True)
    context, name = command.make_context("privrl", [], resilient_parsing=True), "privrl"
    while hasattr(command, "get_command") and arguments:
        name, *arguments = arguments
        found = command.get_command(context, name)
        assert found is not None, f"there is no command `{name}`"
        command = found
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    unknown = [a.split("=")[0] for a in arguments if a.startswith("--") and a.split("=")[0] not in known | {"--help"}]
    assert unknown == [], f"`{name}` has no {unknown}"
    if not any(PLACEHOLDER.fullmatch(argument) for argument in arguments) and arguments and "--help" not in arguments:
        command.make_context(name, list(arguments), parent=context)


@pytest.mark.parametrize(
    ("page", "arguments"), shown_commands(), ids=lambda x: x if isinstance(x, str) else " ".join(x)
)
def test_every_command_in_the_documentation_exists(page: str, arguments: tuple[str, ...]) -> None:
    check_command(list(arguments))


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ("fly now", "no command `fly`"),
        ("store burn study.db", "no command `burn`"),
        ("fit x.parquet --recipe dp-apvi --speed 3", "--speed"),
        ("run a b c --env riverswim --episodes 3", "unexpected extra argument"),
        ("certify --json", "FOLDER"),
    ],
)
def test_a_command_that_does_not_exist_would_be_noticed(wrong: str, complaint: str) -> None:
    with pytest.raises(Exception, match=f"(?i){complaint}"):
        check_command(wrong.split())


def test_recipes_worlds_figures_and_cases_in_the_pages_exist() -> None:
    from privrl.audit.known_bad.cases import CASES
    from privrl.envs.worlds_by_name import names
    from privrl.figures.all_figures import figures
    from privrl.recipes.all_recipes import recipes

    def missing(pattern: str, known: set[str]) -> list[tuple[str, str]]:
        found = [(page.name, name) for page in PAGES for name in re.findall(pattern, page.read_text())]
        assert found
        return [(page, name) for page, name in found if name not in known and not PLACEHOLDER.fullmatch(name)]

    assert missing(r"--recipe (\S+?)[`\s]", set(recipes)) == []
    assert missing(r"privrl run (\S+?)[`\s]", set(recipes)) == []
    assert missing(r"--env ([\w:-]+)", set(names())) == []
    assert missing(r"privrl reproduce ([\w-]+)", set(figures)) == []
    assert missing(r"case `([\w-]+)`", {case.name for case in CASES}) == []


def test_the_page_about_recipes_names_all_of_them_and_says_who_is_trusted() -> None:
    from privrl.recipes.all_recipes import recipes

    page = SimpleNamespace(file=SimpleNamespace(src_path="recipes.md"))
    shown = script("recipe_table").on_page_markdown((DOCS / "recipes.md").read_text(), page=page)
    listed = shown.partition("## All recipes")[2]
    assert [name for name in recipes if f"| `{name}` | {recipes[name].summary} |" not in listed] == []
    assert "| `dp-pevi` | PEVI, span-calibrated Gaussian noise | whoever runs it | jin-yang-wang, " in listed


def test_every_known_bad_case_is_on_the_page_about_the_papers() -> None:
    from privrl.audit.known_bad.cases import CASES

    page = (DOCS / "papers.md").read_text()
    assert [case.name for case in CASES if f"case `{case.name}`" not in page] == []


# -------------------------------------------------------------------------------------------------------- API


PACKAGES = ("", "audit", "contracts", "data", "envs", "mdp", "privacy", "recipes", "statistics")


def public_names(path: Path) -> list[str]:
    """What a package's `__init__` offers: everything that it imports or defines without an underscore."""
    names: list[str] = []
    body = ast.parse(path.read_text()).body
    lazy = [block for block in body if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"]
    if lazy:  # then all names are imported under it
        body = lazy[0].body
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names += [alias.asname or alias.name for alias in node.names]
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return [name for name in names if not name.startswith("_")]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_in_the_reference(package: str) -> None:
    module = f"privrl.{package}" if package else "privrl"
    page = (DOCS / "api" / f"{package or 'index'}.md").read_text()
    if re.search(rf"^::: {re.escape(module)}$", page, flags=re.MULTILINE):
        return  # all of it
    listed = re.findall(rf"^::: {re.escape(module)}\.(\w+)$", page, flags=re.MULTILINE)
    assert sorted(public_names(ROOT / "src" / "privrl" / package / "__init__.py")) == sorted(listed)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_what_a_page_imports_is_public(page: Path) -> None:
    """Blocks that run. Those of files inside privrl do not run, and import from modules."""
    for block in blocks(page.read_text()):
        tree = ast.parse(block.text) if block.language == "python" and block.mark != "no-run" else ast.Module([], [])
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "privrl":
                offered = importlib.import_module(str(node.module)).__all__
                assert {alias.name for alias in node.names} <= set(offered), f"{node.module} is not public"


def test_the_public_surface_can_be_held_in_mind() -> None:
    """At most 160 names in all packages together: 120, and 40 for measurements and what else came later."""
    names = [name for path in (ROOT / "src" / "privrl").rglob("__init__.py") for name in public_names(path)]
    assert len(names) <= 160, len(names)


def annotations(public: object) -> Iterator[tuple[str, str]]:
    """The annotations of a public function, or of the fields and public methods of a class and of its bases."""
    owners = [base for base in getattr(public, "__mro__", ()) if base.__module__.startswith("privrl")]
    members: list[Any] = [member for owner in owners for name, member in vars(owner).items() if is_offered(name)]
    for member in [public, *owners, *members]:
        function = inspect.unwrap(getattr(member, "fget", None) or getattr(member, "__func__", member))
        for argument, written in getattr(function, "__annotations__", {}).items():
            yield f"{getattr(function, '__qualname__', public)}({argument})", str(written)


def is_offered(name: str) -> bool:
    return name == "__init__" or not name.startswith("_")


@pytest.mark.parametrize("package", PACKAGES)
def test_public_signatures_name_their_types(package: str) -> None:
    module = importlib.import_module(f"privrl.{package}" if package else "privrl")
    found = {where: text for name in module.__all__ for where, text in annotations(getattr(module, name))}
    assert [where for where, text in found.items() if re.search(r"\bAny\b", text)] == []


# --------------------------------------------------------------------------------------------------- evidence

VERDICT = """# one: a title

Of 2 claims: 1 reproduced, 1 not reproduced.

| # | claim | verdict | number |
|---|---|---|---|
| 1 | it learns | **reproduced** | 0.1 |
| 2 | it is best | **not reproduced** | 0.9 |

**1. reproduced.** More words.
"""


def made(folder: Path, text: str = VERDICT) -> Path:
    folder.mkdir()
    (folder / "verdict.md").write_text(text)
    (folder / "figure.json").write_text('{"figure": "one"}')
    (folder / "runs.parquet").write_bytes(b"large")
    for kind in ("svg", "png"):
        (folder / f"one.{kind}").write_bytes(b"a picture")
    return folder


def test_the_index_of_the_evidence_is_up_to_date() -> None:
    assert (DOCS / "evidence" / "index.md").read_text() == script("evidence").index()


def test_a_verdict_is_taken_over_and_counted(evidence: ModuleType, tmp_path: Path) -> None:
    assert "No verdict" in evidence.index()
    target = evidence.collect(made(tmp_path / "out"))
    assert sorted(path.name for path in target.iterdir()) == ["one.png", "one.svg", "verdict.md"]
    assert "| [one: a title](one/verdict.md) | 2 | 1 | 1 | 0 |" in evidence.index()
    config = {"nav": [{"Home": "index.md"}, {"Evidence": [{"Index": "evidence/index.md"}, {"Papers": "papers.md"}]}]}
    assert evidence.on_config(config)["nav"][1]["Evidence"][1] == {"Figures": [{"one": "evidence/one/verdict.md"}]}


def test_a_smoke_run_is_no_evidence(evidence: ModuleType, tmp_path: Path) -> None:
    smoke = made(tmp_path / "out", VERDICT.replace("Of 2 claims", "**This is a smoke run**: of 2 claims"))
    with pytest.raises(ValueError, match="smoke run"):
        evidence.collect(smoke)
    assert evidence.verdicts() == []


def test_a_verdict_shows_each_plot_once(evidence: ModuleType, tmp_path: Path) -> None:
    folder = made(tmp_path / "out")
    shown = evidence.with_plots(VERDICT, folder)
    assert shown.startswith("# one: a title\n\n![Plot one of one: a title](one.svg)\n") and shown.count("](one.") == 1
    assert evidence.with_plots(shown, folder) == shown


# ----------------------------------------------------------------------------------------------------- the build


@pytest.mark.slow
def test_the_site_builds_strictly_and_fetches_nothing(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="`make docs` installs it")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(PAGES)
    for page in pages:
        assert re.findall(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(?:https?:)?//[^"]*"', page.read_text()) == []
