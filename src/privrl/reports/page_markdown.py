"""The little Markdown of our own verdicts as HTML: headings, paragraphs, lists, tables, code and pictures.

Everything is escaped first, so a verdict can show any text and change nothing but its own shape.
"""

import re
from collections.abc import Callable, Iterator
from html import escape

from privrl.reports.page import code, table

_TABLE_RULE = re.compile(r"\|?\s*:?-{2,}:?\s*(\|\s*:?-{2,}:?\s*)*\|?")
_ITEM = re.compile(r"\s*(?:[-*]|\d+\.)\s+(.*)")
_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*")
_PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


def markdown(text: str, picture: Callable[[str, str], str]) -> str:
    """The text as HTML; headings start at the second level, for the page has a title of its own.

    Arguments:
        text: Markdown as our verdicts use it; what is not understood is shown as it is.
        picture: given an address and a description, the HTML of that picture (or nothing).
    """
    lines = text.splitlines()
    return "\n".join(_blocks(lines, picture))


def first_heading(text: str) -> str | None:
    """The text of the first heading, if there is one."""
    found = next((match for line in text.splitlines() if (match := _HEADING.fullmatch(line))), None)
    return found[2] if found else None


def without_first_heading(text: str) -> str:
    """The text without its first heading, which became the title."""
    lines = text.splitlines()
    at = next((i for i, line in enumerate(lines) if _HEADING.fullmatch(line)), None)
    return text if at is None else "\n".join(lines[:at] + lines[at + 1 :])


def _blocks(lines: list[str], picture: Callable[[str, str], str]) -> Iterator[str]:
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("```"):
            end = next((i for i in range(at + 1, len(lines)) if lines[i].startswith("```")), len(lines))
            yield code("\n".join(lines[at + 1 : end]))
            at = end + 1
        elif match := _HEADING.fullmatch(line):
            level = max(len(match[1]), 2)
            yield f"<h{level}>{_inline(match[2])}</h{level}>"
            at += 1
        elif at + 1 < len(lines) and "|" in line and _TABLE_RULE.fullmatch(lines[at + 1].strip()):
            end = next((i for i in range(at + 2, len(lines)) if "|" not in lines[i]), len(lines))
            yield _table(lines[at], lines[at + 1], lines[at + 2 : end])
            at = end
        elif match := _PICTURE.fullmatch(line.strip()):
            yield picture(match[2], match[1])
            at += 1
        elif not line.strip() or re.fullmatch(r"<!--.*-->", line.strip()):
            at += 1
        else:
            items = bool(_ITEM.fullmatch(line))
            end = next((i for i in range(at + 1, len(lines)) if _ends_text(lines, i, items)), len(lines))
            yield _list(lines[at:end]) if items else f"<p>{_inline(' '.join(lines[at:end]))}</p>"
            at = end


def _ends_text(lines: list[str], at: int, items: bool) -> bool:
    """Whether a paragraph or a list stops before this line."""
    line = lines[at]
    opens_table = at + 1 < len(lines) and "|" in line and bool(_TABLE_RULE.fullmatch(lines[at + 1].strip()))
    opens_list = not items and bool(_ITEM.fullmatch(line))
    opens_code = line.startswith("```")
    return not line.strip() or opens_table or opens_list or opens_code or bool(_HEADING.fullmatch(line))


def _list(lines: list[str]) -> str:
    items: list[str] = []
    for line in lines:
        if match := _ITEM.fullmatch(line):
            items.append(match[1])
        else:
            items[-1] += " " + line.strip()
    return f"<ul>{''.join(f'<li>{_inline(item)}</li>' for item in items)}</ul>"


def _table(head: str, rule: str, body: list[str]) -> str:
    columns = _row(head)
    width = len(columns)
    rows = [(_row(line) + [""] * width)[:width] for line in body]
    numbers = [i for i, dashes in enumerate(_row(rule)) if dashes.endswith(":")]
    return table([_plain(cell) for cell in columns], [[_plain(cell) for cell in row] for row in rows], numbers=numbers)


def _row(line: str) -> list[str]:
    """The cells of a line; a `\\|` does not end a cell."""
    inner = line.strip().removeprefix("|").removesuffix("|")
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", inner)]


def _plain(text: str) -> str:
    """Bold, emphasis and links as the words alone; tables know only code."""
    return re.sub(r"\*\*(.+?)\*\*", r"\1", _LINK.sub(r"\1", text))


def _inline(text: str) -> str:
    pieces = escape(text).split("`")
    if len(pieces) % 2 == 0:
        pieces = [escape(text)]
    return "".join(f"<code>{piece}</code>" if i % 2 else _words(piece) for i, piece in enumerate(pieces))


def _words(escaped: str) -> str:
    """Bold and emphasis; a link is shown as its words, for the page stands alone."""
    text = _LINK.sub(lambda m: f"{m[1]} ({m[2]})" if "://" in m[2] else m[1], escaped)
    text = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", text)
    return re.sub(r"(?<![\w*])\*([^\s*<](?:[^*<]*[^\s*<])?)\*(?![\w*])", r"<em>\1</em>", text)
