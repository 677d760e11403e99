"""The page of a reproduced figure: its plots, and a verdict on every claim that the paper makes about it."""

from pathlib import Path

from privrl.reports.rendering import embed_picture, find_pictures, render, render_page

RUNS = "runs.parquet"
VERDICT = "verdict.md"


def render_figure(folder: str | Path) -> str:
    """Render the page of a folder that `privrl reproduce` wrote: `verdict.md`, plots (.svg or .png) and runs."""
    from privrl.reports.verdict_markdown import render_markdown  # markdown-it takes long to import

    folder = Path(folder)
    heading, _, rest = (folder / VERDICT).read_text(encoding="utf-8").partition("\n")
    title = heading.lstrip("# ").strip() or f"Figure {folder.absolute().name}"
    shown: set[str] = set()

    def embed(address: str, description: str) -> str:
        path = folder / address
        vector = path.with_suffix(".svg")
        path = vector if vector.is_file() else path  # it stays sharp in print
        if path.parent.resolve() != folder.resolve() or path.suffix not in (".svg", ".png") or not path.is_file():
            return render("missing_picture.html", address=address)
        shown.add(path.stem)
        return embed_picture(path, description or f"Plot {path.stem}")

    verdict = render_markdown(rest, embed)
    described = "Plot {} of: {}. The verdict below says what it shows."
    plots = [
        embed_picture(path, described.format(path.stem, title))
        for path in find_pictures(folder)
        if path.stem not in shown
    ]
    rows, columns = _read_shape(folder / RUNS)
    name = folder.absolute().name
    return render_page(
        "figure.html", title=title, plots=plots, verdict=verdict, file=f"{name}/{RUNS}", rows=rows, columns=columns
    )


def _read_shape(path: Path) -> tuple[int, list[str]]:
    """The number of rows and the columns of a Parquet file; none if there is no file."""
    if not path.is_file():
        return 0, []
    import pyarrow.parquet

    content = pyarrow.parquet.read_metadata(path)
    return content.num_rows, list(content.schema.names)
