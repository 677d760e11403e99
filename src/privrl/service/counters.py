"""What the service measures about itself: a fixed list that does not depend on records.

Whether a record came, could be read, how many steps it had, and whether a person returned depend on records or are as
secret. Calls that carry these (`Endpoint.private`) are neither timed nor counted. Of arrivals, only the first of each
person counts.
"""

import bisect
import collections
import threading

import numpy as np

from privrl.service.refusals import REASONS

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The upper bounds of the buckets of durations."""
NUMBERS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 256.0)
"""The upper bounds of the buckets of numbers of people in one commit."""
_KEPT, _MIN_VALUES = 2_048, 64


class Measurements:
    """The values of one measurement: all of them in buckets, and quantiles of the latest ones.

    Arguments:
        bounds: upper bounds of the buckets; a last one has no bound.
    """

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self._latest: collections.deque[float] = collections.deque(maxlen=_KEPT)

    def add(self, value: float) -> None:
        """Add a value."""
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.sum += value
        self._latest.append(value)

    def quantile(self, share: float) -> float | None:
        """Return a quantile of the latest values; `None` if there are too few."""
        values = list(self._latest)
        return float(np.quantile(values, share)) if len(values) >= _MIN_VALUES else None


class Counters:
    """The measurements of one study.

    Attributes:
        refusals: number of refused requests, by reason.
        seconds: from request to response, by the name of the endpoint.
        reports: devices that reported, per commit of the writer (local studies).
        arrivals: people who came for the first time, by the name of the app's key; a stolen key shows here.
        last_probe: when the writer answered the last probe, in seconds since 1970.
    """

    def __init__(self) -> None:
        self.refusals = dict.fromkeys(REASONS, 0)
        self.seconds: dict[str, Measurements] = collections.defaultdict(Measurements)
        self.reports = Measurements(NUMBERS)
        self.arrivals: collections.Counter[str] = collections.Counter()
        self.last_probe: float | None = None
        self._lock = threading.Lock()

    def count_refusal(self, reason: str) -> None:
        """Count a refusal."""
        with self._lock:
            self.refusals[reason] += 1
