"""Prints text from untrusted files safely."""


def printable(text: str) -> str:
    """Returns the text on one line with every control character escaped, so that a terminal only prints it.

    >>> printable("two\\nlines")
    'two\\\\nlines'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
