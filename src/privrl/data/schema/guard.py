"""Errors of pyarrow, NumPy and the operating system without their words, which quote what they found in a cell."""

from types import TracebackType

from privrl.data.schema.table_schema import TableError

_WRITE_AGAIN = "Check how the file was written, and write it again."


class redact_errors:  # noqa: N801 read as a function: `with redact_errors(...):`
    """Whatever is raised inside becomes a `TableError` with this problem and the name of the fault.

    **Formal guarantee.** Nothing of the first error's text is in the new one, nor in its cause or context. Every call
    of this package into pyarrow that looks at cells is inside one.
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
        del error, trace  # whoever prints the variables of this frame does not find it either
        try:
            raise safe
        except TableError:
            safe.__context__ = None  # Python has put the first error there, which would travel along
            raise
