"""What a store refuses, each reason under its own name."""


class StoreError(ValueError):
    """A store that cannot be opened, or that refuses a request."""


class UnreachableError(StoreError, ConnectionError):
    """The server of a store cannot be reached at this moment."""


class StudyMismatchError(StoreError):
    """The file was opened for another study, or with other limits."""


class StoreBudgetError(StoreError):
    """A release that its pool cannot pay for. Nothing was reserved."""


class SumFullError(StoreError):
    """A sum that would get more contributions than it takes. Nothing was added."""


class SumSealedError(StoreError):
    """A sum that takes no contributions any more. Nothing was added."""


class ConflictError(StoreError):
    """Something else was already contributed under this key. Nothing was added."""


class QueueFullError(StoreError):
    """A queue whose places are all taken. Nothing was written."""


class BurntError(StoreError):
    """A release whose owner died before its value was kept. Its charge stays and it has no value."""


class TamperedError(StoreError):
    """Rows of the store are not those that its chain was written for. It cannot be trusted any more."""


class BehindLogError(StoreError):
    """The store lacks what its audit log says was written: an older copy was put back, or rows were removed."""


class AuditLogError(StoreError):
    """The audit log of a store was changed or cut. What the store has spent is in question."""
