"""What the service measures about itself: a fixed list, with nothing in it that tells how many records were counted.

How many records came in is a number that depends on records (one that never came, or came too late, is an empty one),
so answers are not counted: of times and of people per commit only quantiles over the latest ones are kept, and only
when there are enough of them. Refusals are counted by reason. All of this is for the operator.
"""

import collections
import threading

import numpy as np

from privrl.service.refusals import REASONS

_KEPT, _LEAST = 2_048, 64


class Latest:
    """The latest values of one measurement; quantiles of them, without how many there were."""

    def __init__(self) -> None:
        self._values: collections.deque[float] = collections.deque(maxlen=_KEPT)

    def add(self, value: float) -> None:
        """One more."""
        self._values.append(value)

    def quantile(self, share: float) -> float | None:
        """The value that a `share` of the latest ones does not exceed; `None` before there are enough."""
        values = list(self._values)
        return float(np.quantile(values, share)) if len(values) >= _LEAST else None


class Counters:
    """Of one study.

    Attributes:
        refusals: how many requests were refused, by reason.
        seconds: from request to answer, by the name of the endpoint.
        people: per commit of the writer.
    """

    def __init__(self) -> None:
        self.refusals = dict.fromkeys(REASONS, 0)
        self.seconds: dict[str, Latest] = collections.defaultdict(Latest)
        self.people = Latest()
        self._lock = threading.Lock()

    def refused(self, reason: str) -> None:
        """One more refusal."""
        with self._lock:
            self.refusals[reason] += 1
