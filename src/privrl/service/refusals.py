"""What the service refuses: one list of reasons, each with its status, and the problem document (RFC 9457) it becomes.

A reason is a word that programs may rely on; the document's `type` is `urn:privrl:problem:` and that word. Details say
what was sent, what is allowed and what to do next, and never a value of a person.
"""

import msgspec

TYPE = "urn:privrl:problem:"

REASONS: dict[str, tuple[int, str]] = {
    "not-found": (404, "There is nothing at this address"),
    "not-allowed": (405, "This address does not take this method"),
    "unknown-study": (404, "There is no study of this name"),
    "not-offered": (404, "Studies of this kind do not have this"),
    "no-key": (401, "A key is needed"),
    "wrong-key": (403, "This key may not do this"),
    "wrong-host": (421, "The operator's port has another name"),
    "too-large": (413, "The request is too large"),
    "malformed": (400, "The request cannot be read"),
    "unknown-ticket": (403, "This is not a ticket of this study"),
    "out-of-range": (422, "A number lies outside the study's range"),
    "bad-record": (422, "The record cannot be read"),
    "wrong-length": (400, "A report of this study has another length"),
    "damaged": (400, "The report was damaged on the way"),
    "other-study": (409, "The report belongs to another study"),
    "forged": (403, "The ticket was not issued by this study"),
    "expired": (410, "The ticket has expired"),
    "unknown-plan": (404, "There is no such plan"),
    "conflict": (409, "This ticket has already reported something else"),
    "full": (410, "The study takes nobody any more"),
    "purged": (410, "The study has ended and its raw parts are gone"),
    "not-purged": (409, "What is raw could not be removed"),
    "starting": (503, "The study is being opened"),
    "unavailable": (503, "The store of the study cannot be used"),
    "paused": (503, "The study is paused"),
    "busy": (503, "Too many people at once"),
    "failed": (500, "The service failed"),
}
"""Every reason with its status and its title."""

_RETRY = {"starting": 5, "unavailable": 15, "paused": 60, "busy": 1}  # seconds after which the same request may succeed


class RefusedError(Exception):
    """A request that is refused; nothing was kept."""

    def __init__(self, reason: str, detail: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        super().__init__(detail)
        self.reason, self.headers = reason, headers
        self.status, self.title = REASONS[reason]
        self.retry_after = _RETRY.get(reason)


def not_open(failed: bool) -> RefusedError:
    """What is said while a store is being opened, or cannot be used."""
    if failed:
        words = (
            "The store of this study cannot be used; the service keeps trying. Nothing was kept; send this again later."
        )
        return RefusedError("unavailable", words)
    return RefusedError("starting", "The study is being opened. Nothing was kept; send this again soon.")


class ProblemDocument(msgspec.Struct):
    """An error in the form of RFC 9457. `type` names the reason and never changes; `detail` is for people."""

    type: str
    title: str
    status: int
    detail: str

    @classmethod
    def of(cls, refused: RefusedError) -> "ProblemDocument":
        """The document of a refusal."""
        return cls(TYPE + refused.reason, refused.title, refused.status, str(refused))
