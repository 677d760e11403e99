"""Render the HTML pages of privrl from Jinja2 templates. A page is one file that loads nothing.

Templates escape every value. The only exceptions are `Markup` values, which are parts that other templates or
`plots.style.to_svg` made. The frame of every page, `page.html`, forbids browsers to load anything from elsewhere.
"""

import base64
import functools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from markupsafe import Markup, escape

from privrl.plots.style import to_file, to_svg

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.figure import Figure

_OWN = "privrl.reports"
_PICTURES = {".svg": "image/svg+xml", ".png": "image/png"}


@dataclass(frozen=True)
class HtmlTable:
    """A table of text, in which `backticks` mark code. The first column contains the headings of the rows.

    Arguments:
        columns: the headings of the columns.
        rows: one text for each column.
        caption: what the table shows, written above it.
        numbers: the positions of columns that are aligned to the right.
        marked: rows to highlight, by position.
        stacked: on a narrow screen show every row as a card, with the heading of the column before each cell.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    numbers: Collection[int] = ()
    marked: Mapping[int, Literal["chosen", "bad"]] = field(default_factory=dict)
    stacked: bool = False


def render_page(template: str, *, package: str = _OWN, **facts: object) -> str:
    """Render a whole page, as `render` does, for use outside of templates."""
    return str(render(template, package=package, **facts))


def render(template: str, *, package: str = _OWN, **facts: object) -> Markup:
    """Render a part of a page, for use in another template.

    Arguments:
        template: the name of a file in the folder `templates` of `package`.
        package: a package with templates of its own; they can extend and include those of the reports.
        facts: what the template shows.
    """
    return Markup(_environment(package).get_template(template).render(facts))


@functools.cache
def _environment(package: str) -> "Environment":
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    packages = dict.fromkeys((package, _OWN))
    made = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in packages]),
        autoescape=True,
        undefined=StrictUndefined,  # a misspelt name is an error, not a gap in a sentence
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"code": mark_code, "percent": format_percent, "number": format_number, "s": plural}
    return made


def mark_code(text: str) -> Markup:
    """Escape the text and show parts between `backticks` as code."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # a single backtick opens nothing
        return escape(text)
    marked = (Markup("<code>{}</code>").format(piece) if i % 2 else escape(piece) for i, piece in enumerate(pieces))
    return Markup("").join(marked)


def format_percent(share: float) -> str:
    """Write a share as a percentage, with one decimal if it is small: "76%", "7.2%", "5%", "<0.1%"."""
    if 0 < share < 0.0005:
        return "<0.1%"
    digits = f"{100 * share:.1f}" if 0 < share < 0.095 else f"{100 * share:.0f}"
    return f"{digits.removesuffix('.0')}%"


def format_number(value: float, digits: int = 3) -> str:
    """Write a number with this many significant digits."""
    return f"{value:.{digits}g}"


def format_measurement(value: float, digits: int = 3) -> str:
    """Write a measurement with this many significant digits and without an exponent: "1,860", "4.75", "0.031"."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{round(value, places):,.{max(places, 0)}f}"


def plural(count: int, noun: str) -> str:
    """Write a number with its noun, which gets an s unless there is exactly one: "1 action", "1,200 actions"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def embed_plot(figure: "Figure", description: str) -> Markup:
    """Return a plot for use in a template."""
    return Markup(to_svg(figure, description))


def embed_plot_as_image(figure: "Figure", description: str) -> Markup:
    """Return a plot as an image, for pages whose policy forbids the styles inside a drawing."""
    source = f"data:{_PICTURES['.svg']};base64,{base64.b64encode(to_file(figure, 'svg')).decode()}"
    return Markup('<img alt="{}" src="{}">').format(description, source)


def embed_picture(path: Path, description: str) -> Markup:
    """Return a .svg or .png file as an image inside the page. Scripts in it do not run."""
    source = f"data:{_PICTURES[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"
    return render("picture.html", source=source, description=description)


def find_pictures(folder: Path) -> list[Path]:
    """Return the plots of a folder, each once: the .svg file if there is one, the .png file otherwise."""
    found = {path.stem: path for suffix in (".png", ".svg") for path in folder.glob(f"*{suffix}")}
    return [found[name] for name in sorted(found)]
