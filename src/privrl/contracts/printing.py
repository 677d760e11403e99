"""Prints text from untrusted files safely."""

from collections.abc import Mapping
from html import escape


def printable(text: str) -> str:
    """Returns the text on one line with every control character escaped, so that a terminal only prints it.

    >>> printable("two\\nlines")
    'two\\\\nlines'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def short_repr(kind: str, *parts: str) -> str:
    """`Kind(part, part)` on one line, without empty parts."""
    return printable(f"{kind}({', '.join(part for part in parts if part)})")


def html_table(title: str, rows: Mapping[str, object]) -> str:
    """A small table for a notebook, with everything escaped. Rows without a value are left out."""
    cells = (f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in rows.items() if value)
    return f"<table><caption>{escape(title)}</caption>{''.join(cells)}</table>"
