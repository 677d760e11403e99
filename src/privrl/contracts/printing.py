"""Prints text from untrusted files safely, and durations."""

from collections.abc import Mapping
from html import escape

_UNITS = (("day", 86_400.0), ("hour", 3_600.0), ("minute", 60.0))


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


def describe_seconds(seconds: float) -> str:
    """A duration, exact, in the largest unit of which it is a whole number.

    >>> describe_seconds(2_592_000.0), describe_seconds(90.5)
    ('30 days', '90.5 seconds')
    """
    unit, size = next(((unit, size) for unit, size in _UNITS if seconds and seconds % size == 0), ("second", 1.0))
    number = seconds / size
    return f"{int(number) if number == int(number) else number:,} {unit}{'' if number == 1 else 's'}"
