"""The errors of a store, one class for each reason."""


class StoreError(ValueError):
    """The store cannot be opened, or it refuses a request."""


class UnreachableError(StoreError, ConnectionError):
    """The server of a store cannot be reached at this moment."""


class ReadOnlyError(StoreError, OSError):
    """The store is on a file system that is read-only at this moment."""


class StudyMismatchError(StoreError):
    """The file was opened for another study, or with other limits."""


class StoreBudgetError(StoreError):
    """The pool of a release has too little budget left. Nothing was reserved."""


class SumFullError(StoreError):
    """The sum would exceed its largest number of contributions. Nothing was added."""


class SumSealedError(StoreError):
    """The sum is sealed and accepts no more contributions. Nothing was added."""


class ConflictError(StoreError):
    """Another contribution was already made under this key. Nothing was added."""


class QueueFullError(StoreError):
    """All places of the queue are taken. Nothing was written."""


class BurntError(StoreError):
    """The process that reserved the release died before it stored a value. The charge stays spent."""


class TamperedError(StoreError):
    """Rows of the store do not match its hash chain. The store can no longer be trusted."""


class BehindLogError(StoreError):
    """The store lacks an event of its audit log: an older copy was restored, or rows were removed."""


class AuditLogError(StoreError):
    """The audit log of the store was changed or cut. What the store has spent is uncertain."""


_WRONG_FILE = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)


def may_pass(error: BaseException) -> bool:
    """Whether an error may pass without any change: a database is away, a disk is full, a clock is wrong."""
    return isinstance(error, OSError) and not isinstance(error, _WRONG_FILE)
