"""What a worker may say about a failure: our own words, or the name of an error's type, and never a value."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_OURS = "privrl."


class ShardError(RuntimeError):
    """A shard could not be worked on; nothing was released from it."""


@dataclass(frozen=True)
class Failure:
    """An error on its way from a worker to the driver.

    Attributes:
        words: the message of an error of our own, which never holds a value of a person; otherwise its type's name.
        kind: the type of an error of our own.
    """

    words: str = field(repr=False)
    kind: type[Exception] | None = None

    def error(self, shard: int) -> Exception:
        """What the driver raises."""
        if self.kind is not None:
            return self.kind(self.words)
        return ShardError(
            f"Shard {shard} failed with {self.words} on its worker. Nothing was released. Its message may hold values "
            "of people, so it was not sent; run the same command without workers to see it on this machine."
        )


def caught(f: Callable[..., Any], *args: Any) -> Any:
    """What `f` returns, or a `Failure`; nothing is raised, for whoever runs this might log arguments or messages."""
    try:
        return f(*args)
    except Exception as error:
        kind = type(error)
        if kind.__module__.startswith(_OURS):
            return Failure(str(error), kind)
        return Failure(kind.__name__)


def raised(shard: int, result: Any) -> Any:
    """The result, unless it is a failure: then its error is raised."""
    if isinstance(result, Failure):
        raise result.error(shard)
    return result
