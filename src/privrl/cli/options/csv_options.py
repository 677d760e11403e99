"""How a CSV file is written."""

from typing import Annotated

import typer

_PANEL = "How a CSV file is written"

DelimiterOption = Annotated[
    str, typer.Option("--delimiter", help="The character between cells; `tab` for a tab.", rich_help_panel=_PANEL)
]
DecimalOption = Annotated[
    str, typer.Option("--decimal", help="The decimal point of numbers, `.` or `,`.", rich_help_panel=_PANEL)
]
EncodingOption = Annotated[
    str, typer.Option("--encoding", help="The encoding of its text, such as cp1252.", rich_help_panel=_PANEL)
]


def parse_delimiter(words: str) -> str:
    """The delimiter of an option, in which a tab is a word."""
    return "\t" if words in ("tab", "\\t") else words
