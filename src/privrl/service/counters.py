"""What the service measures about itself: a fixed list, with nothing in it that depends on a record.

That a record came in, that it could not be read, how many steps it had, that somebody came back: all that depends on
records or is as secret as one, so calls that carry it (`Endpoint.private`) are neither timed nor counted, and of
arrivals the first of each person is. Of what is timed, quantiles over the latest calls are kept, and no number of
calls.
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
        reports: devices that reported, per commit of the writer; in a local study.
        arrivals: people who came for the first time, by the name of the app's key; a stolen key shows here.
    """

    def __init__(self) -> None:
        self.refusals = dict.fromkeys(REASONS, 0)
        self.seconds: dict[str, Latest] = collections.defaultdict(Latest)
        self.reports = Latest()
        self.arrivals: collections.Counter[str] = collections.Counter()
        self._lock = threading.Lock()

    def refused(self, reason: str) -> None:
        """One more refusal."""
        with self._lock:
            self.refusals[reason] += 1
