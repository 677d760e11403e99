"""What the service refuses: one list of reasons with their HTTP status, and problem documents (RFC 9457).

Programs may rely on the reason; the document's `type` is `urn:privrl:problem:` followed by it. The detail states the
problem, what is allowed and what to do next. It never contains a value that a request has sent.
"""

import re

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
    "full": (410, "The study accepts no more people"),
    "purged": (410, "The study has ended and its raw sums are deleted"),
    "not-confirmed": (409, "The name of the study is needed to purge it"),
    "not-purged": (409, "The raw sums could not be deleted"),
    "starting": (503, "The study is being opened"),
    "unavailable": (503, "The store of the study cannot be used"),
    "paused": (503, "The study is paused"),
    "busy": (503, "Too many people at once"),
    "failed": (500, "The service failed"),
}
"""Every reason with its HTTP status and its title."""

_RETRY_SECONDS = {"starting": 5, "unavailable": 15, "paused": 60, "busy": 1}  # then the same request may succeed

# Errors of msgspec that contain its own words and names from `bodies.py` only. An unknown field is not among them,
# because its name may be that of a person.
_QUOTES_NOTHING = re.compile(
    r"(Expected `[^`]+`(, got `\w+`| of length [<>]= \d+)?|Object missing required field `\w+`|Number out of range"
    r"|Expected `int` [<>]= -?\d+|Input data was truncated|JSON is malformed: [a-z ]+ \(byte \d+\))"
    r"( - at `\$[\w.\[\]]*`)?"
)


class ProblemDocument(msgspec.Struct):
    """An error in the form of RFC 9457. `type` names the reason and never changes; `detail` is for people."""

    type: str
    title: str
    status: int
    detail: str


class RefusedError(Exception):
    """A refused request. Nothing of it was kept."""

    def __init__(self, reason: str, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.reason, self.headers = reason, headers or {}
        self.status, self.title = REASONS[reason]
        self.retry_after = _RETRY_SECONDS.get(reason)

    @property
    def document(self) -> ProblemDocument:
        """The refusal as a problem document."""
        return ProblemDocument(TYPE + self.reason, self.title, self.status, str(self))


def refuse_not_open(failed: bool) -> RefusedError:
    """Make the refusal of a study whose store is being opened, or has failed."""
    if failed:
        detail = "The store of this study cannot be used; the service keeps trying. Nothing was kept; try again later."
        return RefusedError("unavailable", detail)
    return RefusedError("starting", "The study is being opened. Nothing was kept; try again in a few seconds.")


def describe_decoding(error: Exception) -> str:
    """Describe why a body could not be decoded, without quoting anything of it."""
    words = str(error)
    if not _QUOTES_NOTHING.fullmatch(words):
        words = "it is not UTF-8, is nested too deeply, or has a field that `/openapi.json` does not list"
    return f"The body is not the JSON that this address takes: {words}."
