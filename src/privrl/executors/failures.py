"""How errors travel from a worker to the driver: as a message of privrl's own or a type's name, never as a value."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

_OURS = "privrl."  # errors that are defined in these modules never quote a person's value
_Result = TypeVar("_Result")


class ShardError(RuntimeError):
    """A worker could not finish a shard. Nothing was released from it."""


@dataclass(frozen=True)
class Failure:
    """An error on its way from a worker to the driver.

    Attributes:
        words: the message of an error of privrl's own, which never holds a person's value; otherwise its type's name.
        kind: the type of an error of privrl's own.
    """

    words: str = field(repr=False)
    kind: type[Exception] | None = None

    def to_error(self, shard: int) -> Exception:
        """The error that the driver raises."""
        if self.kind is not None:
            return self.kind(self.words)
        return ShardError(
            f"Shard {shard} failed with {self.words} on its worker. Nothing was released. The error's message was not "
            "sent, because it may hold values of people. Run the same command without workers to see it here."
        )


def call_safely(f: Callable[..., _Result], *args: object) -> _Result | Failure:
    """Calls `f` and returns its result or a `Failure`.

    Nothing is raised, because the program that runs this code might log the arguments or the message of an error.
    """
    try:
        return f(*args)
    except Exception as error:
        kind = type(error)
        if kind.__module__.startswith(_OURS):
            return Failure(str(error), kind)
        return Failure(kind.__name__)


def raise_failure(shard: int, result: _Result | Failure) -> _Result:
    """Returns the result, or raises the error of a failure."""
    if isinstance(result, Failure):
        raise result.to_error(shard)
    return result
