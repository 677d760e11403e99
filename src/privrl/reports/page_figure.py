"""A reproduced figure as a page: its plots, and a verdict on every claim that the paper makes with it."""

from html import escape
from pathlib import Path

from privrl.reports.page import code, page, paragraph, picture, pictures_in
from privrl.reports.page_markdown import markdown

RUNS = "runs.parquet"
VERDICT = "verdict.md"


def figure_page(folder: str | Path) -> str:
    """The page of a folder that `privrl reproduce` wrote: `verdict.md`, plots (.svg or .png), and `runs.parquet`."""
    folder = Path(folder)
    verdict = (folder / VERDICT).read_text(encoding="utf-8")
    heading, _, rest = verdict.partition("\n")
    title = heading.lstrip("# ").strip() or f"Figure {folder.absolute().name}"
    shown: set[str] = set()

    def embedded(address: str, description: str) -> str:
        path = folder / address
        vector = path.with_suffix(".svg")
        path = vector if vector.is_file() else path  # it stays sharp in print
        if path.parent.resolve() != folder.resolve() or path.suffix not in (".svg", ".png") or not path.is_file():
            return paragraph(f"(The picture `{address}` is not in this folder.)", "small")
        shown.add(path.stem)
        return picture(path, description or f"Plot {path.stem}")

    words = markdown(rest, embedded)
    plots = [
        picture(path, f"Plot {path.stem} of: {title}. The verdict below says what it shows.")
        for path in pictures_in(folder)
        if path.stem not in shown
    ]
    return page(title, "\n".join([f"<h1>{escape(title)}</h1>", *plots, words, _source(folder)]))


def _source(folder: Path) -> str:
    path = folder / RUNS
    if not path.is_file():
        return ""
    import pyarrow.parquet

    content = pyarrow.parquet.read_metadata(path)
    name = folder.absolute().name
    columns = ", ".join(f"`{column}`" for column in content.schema.names)
    return (
        "<h2>The numbers behind it</h2>"
        + paragraph(f"`{RUNS}` in the same folder holds {content.num_rows:,} rows with the columns {columns}.")
        + code(f"import pyarrow.parquet\nruns = pyarrow.parquet.read_table({f'{name}/{RUNS}'!r})")
    )
