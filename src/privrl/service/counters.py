"""What the service measures about itself: a fixed list that does not depend on records.

Whether a record came, could be read, how many steps it had, and whether a person returned depend on records or are as
secret. Calls that carry these (`Endpoint.private`) are neither timed nor counted. Of arrivals, only the first of each
person counts. Timed calls yield quantiles of the latest ones, and not their number.
"""

import collections
import threading

import numpy as np

from privrl.service.refusals import REASONS

_KEPT, _MIN_VALUES = 2_048, 64


class Latest:
    """The latest values of one measurement, and their quantiles. Their number is not shown."""

    def __init__(self) -> None:
        self._values: collections.deque[float] = collections.deque(maxlen=_KEPT)

    def add(self, value: float) -> None:
        """Add a value."""
        self._values.append(value)

    def quantile(self, share: float) -> float | None:
        """Return a quantile of the latest values; `None` if there are too few."""
        values = list(self._values)
        return float(np.quantile(values, share)) if len(values) >= _MIN_VALUES else None


class Counters:
    """The measurements of one study.

    Attributes:
        refusals: number of refused requests, by reason.
        seconds: from request to response, by the name of the endpoint.
        reports: devices that reported, per commit of the writer (local studies).
        arrivals: people who came for the first time, by the name of the app's key; a stolen key shows here.
    """

    def __init__(self) -> None:
        self.refusals = dict.fromkeys(REASONS, 0)
        self.seconds: dict[str, Latest] = collections.defaultdict(Latest)
        self.reports = Latest()
        self.arrivals: collections.Counter[str] = collections.Counter()
        self._lock = threading.Lock()

    def count_refusal(self, reason: str) -> None:
        """Count a refusal."""
        with self._lock:
            self.refusals[reason] += 1
