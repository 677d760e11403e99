"""docs/notation.md is what the source says: names are where they are listed, and each has one meaning."""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "privrl"
PAGE = (ROOT / "docs" / "notation.md").read_text()
WORDS, LETTERS = PAGE.split("## Words")[1].split("## Letters")

# Names that still have two meanings, by module: for a shorter list, rename one of each.
ALLOWED: dict[str, set[str]] = {}
STILL_USED_IN: tuple[str, ...] = ()  # packages whose files have words of the list of those to avoid


def names(module: Path) -> set[str]:
    """What a module defines at its top level."""
    found = set()
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def rows(section: str) -> list[list[str]]:
    """The cells of the tables of a section, without their heads."""
    lines = [line for line in section.splitlines() if line.startswith("|") and not line.startswith("|---")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_words_are_defined_where_the_page_says():
    listed = [(row[0].strip("`"), row[1].strip("`")) for row in rows(WORDS) if len(row) == 3 and row[0] != "word"]
    assert len(listed) > 20 and len({word for word, _ in listed}) == len(listed)
    for word, module in listed:
        assert word in names(SOURCE / module), f"`{word}` is not defined in {module}: correct docs/notation.md"


def test_no_two_modules_define_a_type_of_the_same_name():
    """Classes, and aliases of types; constants and private names are a module's own affair."""
    where = defaultdict(set)
    for module in SOURCE.rglob("*.py"):
        for name in names(module):
            if name[0].isupper() and not name.isupper():
                where[name].add(str(module.relative_to(SOURCE)))
    twice = {name: modules for name, modules in where.items() if len(modules) > 1}
    assert not {name: modules for name, modules in twice.items() if not modules <= ALLOWED.get(name, set())}


def test_words_of_the_interface_exist():
    """Every `name` in the second column of the letters is an identifier of the source."""
    listed = {name for row in rows(LETTERS) for name in re.findall(r"`(\w+)`", row[1])}
    used = {word for module in SOURCE.rglob("*.py") for word in re.findall(r"\w+", module.read_text())}
    assert len(listed) > 20 and listed <= used


def test_words_to_avoid_are_avoided():
    avoided = [row[0] for row in rows(WORDS) if len(row) == 2 and row[0] != "not"]
    assert avoided
    for module in SOURCE.rglob("*.py"):
        place = module.relative_to(SOURCE)
        if place.parts[0] not in STILL_USED_IN:
            found = re.findall(rf"\b(?:{'|'.join(avoided)})\b", module.read_text(), re.IGNORECASE)
            assert not found, f"{place} says {sorted(set(found))}; docs/notation.md has another word"
