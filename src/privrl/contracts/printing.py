"""Text of files that anyone may have written, for a terminal."""


def printable(text: str) -> str:
    """The text on one line, with every control character escaped: a terminal prints it and does nothing else."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
