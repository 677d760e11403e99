"""Replace errors of pyarrow, NumPy and the operating system, whose messages quote cells."""

from types import TracebackType

from privrl.data.schema.table_schema import TableError

_WRITE_AGAIN = "Check how the file was written, and write it again."


class redact_errors:  # noqa: N801 read as a function: `with redact_errors(...):`
    """Turn any error raised inside into a `TableError` with this problem and the name of the error's class.

    **Formal guarantee.** The new error contains nothing of the first error's text, and neither do its cause and
    context. Every call of this package into pyarrow that reads cells is inside a `with redact_errors(...)` block.
    """

    def __init__(self, problem: str, remedy: str = _WRITE_AGAIN) -> None:
        self._problem, self._remedy = problem, remedy

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception):
            return
        safe = TableError(f"{self._problem} ({type(error).__name__}). {self._remedy}")
        del error, trace  # a debugger that prints the variables of this frame must not find it either
        try:
            raise safe
        except TableError:
            safe.__context__ = None  # Python has stored the first error here
            raise
