"""The papers that more than one recipe, or a trust model, rests on: `papers.bib`, an entry of BibTeX each."""

from pathlib import Path


def key_of(entry: str) -> str:
    """The key under which BibTeX knows an entry."""
    return entry.partition("{")[2].partition(",")[0]


papers: dict[str, str] = {
    key_of(entry): entry
    for entry in Path(__file__).with_name("papers.bib").read_text(encoding="utf-8").strip().split("\n\n")
}
