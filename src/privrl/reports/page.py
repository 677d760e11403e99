"""The frame of every page that privrl writes, and its parts: one HTML file that fetches nothing.

Everything that comes from outside is plain text here and is escaped where it is put into a part. Pictures travel
inside the page; a policy in its head forbids browsers to fetch anything, whatever the parts contain.
"""

import base64
from collections.abc import Collection, Mapping, Sequence
from html import escape
from pathlib import Path

GENERATOR = "privrl"

_STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --soft: #444; --paper: #fff; --line: #ddd; --code: #f5f5f5;
        --key: #eef4f9; --warn: #fdf3e4; --bad: #fbe9e4; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --soft: #b8b8b8; --paper: #16181b; --line: #3a3f45; --code: #22262b;
          --key: #16293a; --warn: #3a2c12; --bad: #43200f; }
}
body { font: 17px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; color: var(--ink);
       background: var(--paper); max-width: 42rem; margin: 0 auto; padding: 1rem; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; line-height: 1.25; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
h3 { font-size: 1.02rem; margin-top: 1.6rem; }
p.key, p.warn, p.bad { border-left: 5px solid #0072B2; background: var(--key); padding: .7rem 1rem; }
p.warn { border-color: #E69F00; background: var(--warn); } p.bad { border-color: #D55E00; background: var(--bad); }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
caption { text-align: left; color: var(--soft); font-size: .88rem; padding-bottom: .3rem; }
th, td { text-align: left; padding: .4rem; border-bottom: 1px solid var(--line); vertical-align: top;
         overflow-wrap: normal; }
th:first-child, td:first-child { padding-left: 0; } th:last-child, td:last-child { padding-right: 0; }
tbody th { font-weight: 400; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; }
tr.chosen td, tr.chosen th { font-weight: 600; background: var(--key); }
tr.bad td, tr.bad th { font-weight: 600; background: var(--bad); }
svg, img { width: 100%; height: auto; max-width: 36rem; display: block; margin: 0 auto; background: #fff; }
img.large { max-width: 100%; width: auto; }
figure { margin: 1rem 0; } figcaption, .small { font-size: .88rem; color: var(--soft); }
dt { font-weight: 600; margin-top: 1rem; } dd { margin: .2rem 0 0 0; }
code { font-size: .9em; } p code, li code { overflow-wrap: anywhere; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--code); padding: .7rem;
      font-size: .8rem; line-height: 1.4; }
@media (max-width: 480px) { table { font-size: .84rem; } th, td { padding: .35rem .28rem; } }
@media print {
  :root { color-scheme: light; --ink: #000; --soft: #333; --paper: #fff; --line: #bbb; --code: #f5f5f5;
          --key: #fff; --warn: #fff; --bad: #fff; }
  body { font-size: 10.5pt; max-width: none; padding: 0; } h1, h2, h3 { break-after: avoid; }
  figure, tr, dt, p { break-inside: avoid; } dt { break-after: avoid; } .wide { overflow: visible; }
  svg, img { max-width: 13cm; }
}
"""

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
) -> str:
    """A table whose first column heads its rows.

    Arguments:
        columns, rows: plain text, with `backticks` for code.
        caption: what the table holds, shown above it.
        numbers: columns aligned to the right.
        marked: rows that stand out, "chosen" or "bad" by their number.
    """
    kinds = ["number" if i in numbers else "" for i in range(len(columns))]
    heads = "".join(
        f'<th scope="col"{_attribute("class", kind)}>{with_code(name)}</th>'
        for kind, name in zip(kinds, columns, strict=True)
    )
    lines = "".join(
        f"<tr{_attribute('class', (marked or {}).get(r, ''))}>{_cells(row, kinds)}</tr>" for r, row in enumerate(rows)
    )
    above = f"<caption>{with_code(caption)}</caption>" if caption else ""
    region = f' role="region" tabindex="0"{_attribute("aria-label", caption or columns[0])}'  # keyboards can scroll it
    return (
        f'<div class="wide"{region}><table>{above}<thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>'
    )


def _cells(row: Sequence[str], kinds: Sequence[str]) -> str:
    cells = [f"{_attribute('class', kind)}>{with_code(text)}" for kind, text in zip(kinds, row, strict=True)]
    return f'<th scope="row"{cells[0]}</th>' + "".join(f"<td{cell}</td>" for cell in cells[1:])


def _attribute(name: str, value: str) -> str:
    return f' {name}="{escape(value)}"' if value else ""


def drawing(svg: str, caption: str = "") -> str:
    """An `<svg>` element that `to_svg` made."""
    below = f"<figcaption>{with_code(caption)}</figcaption>" if caption else ""
    return f"<figure>{svg}{below}</figure>"


def picture(path: Path, description: str, caption: str = "") -> str:
    """A .svg or .png file, carried inside the page as an image: nothing in it can run or reach out."""
    content = base64.b64encode(path.read_bytes()).decode()
    below = f"<figcaption>{with_code(caption)}</figcaption>" if caption else ""
    return (
        f'<figure><img class="large" alt="{escape(description)}" '
        f'src="data:{_PICTURES[path.suffix]};base64,{content}">{below}</figure>'
    )


def pictures_in(folder: Path) -> list[Path]:
    """The plots of a folder by name, each once: as .svg where there is one, as .png otherwise."""
    found = {path.stem: path for suffix in (".png", ".svg") for path in folder.glob(f"*{suffix}")}
    return [found[name] for name in sorted(found)]
