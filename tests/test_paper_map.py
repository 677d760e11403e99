"""The paper map is what the tags in the source say: in order, and complete."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def generator():
    spec = importlib.util.spec_from_file_location("paper_map", ROOT / "docs" / "paper_map.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_paper_map_is_up_to_date():
    page = generator().paper_map()
    assert "A1:5" in page
    assert (ROOT / "docs" / "paper_map.md").read_text() == page, "run `make paper-map`"


def test_every_paper_is_in_the_order_of_its_lines_without_an_empty_cell():
    module = generator()
    sections = re.split(r"^## ", module.paper_map(), flags=re.MULTILINE)[1:]
    assert [section.split()[0] for section in sections][: len(module.KEYS)] == list(module.KEYS)
    for section in sections:
        rows = [re.split(r" (?<!\\)\| ", row[2:-2]) for row in section.splitlines()[4:] if row]
        assert all(len(row) == 4 for row in rows)
        assert [row for row in rows if not all(re.search(r"\w", cell) for cell in row)] == []
        lines = [[int(n) for n in re.findall(r"\d+", place)][:2] for place, *_ in rows if re.match(r"A\d", place)]
        assert lines == sorted(lines)


def test_a_new_paper_needs_no_list(tmp_path):
    (tmp_path / "x.py").write_text("y = 2  # [doe-roe A1:1]\nz = x[a:b]  # a list [of words]\n")
    assert generator().rows_of(tmp_path / "x.py") == [("doe-roe", "A1:1", "y = 2", "as printed")]


def test_a_lone_comment_is_about_the_line_below(tmp_path):
    (tmp_path / "x.py").write_text("# [sahu A1:4]\nx = 1 | 2\ny = 2  # [sahu A1:10] not so\n")
    expected = [("sahu", "A1:4", "x = 1 \\| 2", "as printed"), ("sahu", "A1:10", "y = 2", "not so")]
    assert generator().rows_of(tmp_path / "x.py") == expected
