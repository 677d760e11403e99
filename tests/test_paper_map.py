"""The paper map is what the tags in the source say."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_paper_map_is_up_to_date():
    spec = importlib.util.spec_from_file_location("paper_map", ROOT / "docs" / "paper_map.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = module.paper_map()
    assert "A1:5" in page
    assert (ROOT / "docs" / "paper_map.md").read_text() == page, "run `make paper-map`"
