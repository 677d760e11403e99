"""Errors of pyarrow, NumPy and the operating system without their words, which quote what they found in a cell."""

from collections.abc import Callable
from typing import TypeVar

from privrl.data.schema import TableError

_T = TypeVar("_T")
_WRITE_AGAIN = "Check how the file was written, and write it again."


def guarded(call: Callable[[], _T], problem: str, remedy: str = _WRITE_AGAIN) -> _T:
    """What `call` returns; whatever it raises becomes a `TableError` with this problem and the name of the fault.

    **Formal guarantee.** Nothing of the first error's text is in the new one, nor in its cause or context. Every call
    of this package into pyarrow that looks at cells goes through here.
    """
    try:
        return call()
    except Exception as error:
        fault = type(error).__name__
    # raised after the handler has ended: inside it, the first error would travel along as the context of this one
    raise TableError(f"{problem} ({fault}). {remedy}")
