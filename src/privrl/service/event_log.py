"""The log of a service: one JSON object per line, from a fixed list of events.

A line has the time (ISO 8601, UTC), the level, the event, the study and a sentence, and for some events a few public
numbers. No line depends on a person: there is no line for an arrival, a record or a report, and errors appear by type
and place, because their messages may quote a request.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal

ServiceEvent = Literal[
    "start", "end", "release", "plan", "pause", "resume", "key", "purge", "reconnect", "clock", "tls", "failure"
]
_LOG = logging.getLogger("privrl.service")


def log_event(
    event: ServiceEvent, message: str, *, study: str = "", level: int = logging.INFO, **facts: str | int | float | None
) -> None:
    """Write a line to the log of the service.

    Arguments:
        study: the name of the study; empty if the event is about the whole process.
        facts: further public entries of the line.
    """
    _LOG.log(level, message, extra={"event": event, "study": study, "facts": facts})


class JsonLines(logging.Formatter):
    """Writes each line of the log as a JSON object. Tracebacks are left out, because they may quote a request."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", "failure"),
            "study": getattr(record, "study", ""),
            "message": record.getMessage(),
        }
        return json.dumps(line | getattr(record, "facts", {}), ensure_ascii=False)


def log_to_stderr() -> None:
    """Send the log of the service to the standard error stream, and nowhere else."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    _LOG.handlers[:] = [handler]
    _LOG.setLevel(logging.INFO)
    _LOG.propagate = False
