"""The frame of every page that privrl writes, and its parts: one HTML file that fetches nothing.

Everything that comes from outside is plain text here and is escaped where it is put into a part. Pictures travel
inside the page; a policy in its head forbids browsers to fetch anything, whatever the parts contain.
"""

import base64
from collections.abc import Collection, Mapping, Sequence
from html import escape
from pathlib import Path

GENERATOR = "privrl"

_STYLE = "\n" + (Path(__file__).parent / "templates" / "page.css").read_text(encoding="utf-8")

# No network at all; styles and pictures are in the file itself.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

_PICTURES = {".svg": "image/svg+xml", ".png": "image/png"}


def page(title: str, body: str) -> str:
    """A complete HTML document around `body`, which starts with its own heading."""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="generator" content="{GENERATOR}">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def with_code(text: str) -> str:
    """Escaped text in which `backticks` become code."""
    pieces = escape(text).split("`")
    if len(pieces) % 2 == 0:  # a single backtick opens nothing
        return escape(text)
    return "".join(f"<code>{piece}</code>" if i % 2 else piece for i, piece in enumerate(pieces))


def percent(share: float) -> str:
    """A share in words, with a decimal where it is small."""
    if 0 < share < 0.0005:
        return "< 0.1 %"
    return f"{100 * share:.1f} %" if 0 < share < 0.095 else f"{100 * share:.0f} %"


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph; `kind` is "key", "warn", "bad" or "small", or nothing for plain text."""
    return f"<p{_attribute('class', kind)}>{with_code(text)}</p>"


def listed(items: Sequence[str]) -> str:
    """A list with bullets."""
    return f"<ul>{''.join(f'<li>{with_code(item)}</li>' for item in items)}</ul>" if items else ""


def answers(pairs: Sequence[tuple[str, str]]) -> str:
    """Questions and their answers."""
    return f"<dl>{''.join(f'<dt>{with_code(q)}</dt><dd>{with_code(a)}</dd>' for q, a in pairs)}</dl>"


def code(text: str) -> str:
    """Text as it is, in its own block."""
    return f"<pre>{escape(text)}</pre>"


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    caption: str = "",
    numbers: Collection[int] = (),
    marked: Mapping[int, str] | None = None,
    stacked: bool = False,
) -> str:
    """A table whose first column heads its rows.

    Arguments:
        columns, rows: plain text, with `backticks` for code.
        caption: what the table holds, shown above it.
        numbers: columns aligned to the right.
        marked: rows that stand out, "chosen" or "bad" by their number.
        stacked: on a narrow screen every row becomes a card, with the name of the column before each cell.
    """
    kinds = ["number" if i in numbers else "" for i in range(len(columns))]
    heads = "".join(
        f'<th scope="col"{_attribute("class", kind)}>{with_code(name)}</th>'
        for kind, name in zip(kinds, columns, strict=True)
    )
    lines = "".join(
        f"<tr{_attribute('class', (marked or {}).get(r, ''))}>{_cells(row, kinds, columns if stacked else ())}</tr>"
        for r, row in enumerate(rows)
    )
    above = f"<caption>{with_code(caption)}</caption>" if caption else ""
    region = f' role="region" tabindex="0"{_attribute("aria-label", caption or columns[0])}'  # keyboards can scroll it
    kind = _attribute("class", "stacked" if stacked else "")
    content = f"{above}<thead><tr>{heads}</tr></thead><tbody>{lines}</tbody>"
    return f'<div class="wide"{region}><table{kind}>{content}</table></div>'


def _cells(row: Sequence[str], kinds: Sequence[str], labels: Sequence[str]) -> str:
    cells = [
        f"{_attribute('class', kind)}{_attribute('data-label', labels[i] if labels else '')}>{with_code(text)}"
        for i, (kind, text) in enumerate(zip(kinds, row, strict=True))
    ]
    return f'<th scope="row"{cells[0]}</th>' + "".join(f"<td{cell}</td>" for cell in cells[1:])


def _attribute(name: str, value: str) -> str:
    return f' {name}="{escape(value)}"' if value else ""


def drawing(content: str, caption: str = "") -> str:
    """An `<svg>` element that `to_svg` made, or another picture."""
    below = f"<figcaption>{with_code(caption)}</figcaption>" if caption else ""
    return f"<figure>{content}{below}</figure>"


def picture(path: Path, description: str) -> str:
    """A .svg or .png file, carried inside the page as an image: nothing in it can run or reach out."""
    source = f"data:{_PICTURES[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"
    return drawing(f'<img class="large" alt="{escape(description)}" src="{source}">')


def pictures_in(folder: Path) -> list[Path]:
    """The plots of a folder by name, each once: as .svg where there is one, as .png otherwise."""
    found = {path.stem: path for suffix in (".png", ".svg") for path in folder.glob(f"*{suffix}")}
    return [found[name] for name in sorted(found)]
