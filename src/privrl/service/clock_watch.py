"""Watches the clock of the machine, on which deadlines depend.

Times of arrivals never decrease: if the clock is set back, an arrival gets the time of the one before it, and blocks
close later by as much as the clock was set back. That is safe for privacy, but plans stand still meanwhile, so it is
logged and measured. If the clock was ahead while people arrived, the same happens once it is right again. A clock that
is far ahead when a service starts would do more: it would close blocks early and move all later deadlines. That is
refused.

**Formal guarantee.** What is logged and measured is a function of the clock and of the times of first arrivals, which
are public.
"""

import logging

from privrl.service.bodies import write_time
from privrl.service.event_log import log_event

_TOLERATED_SECONDS = 60.0  # clocks of several machines differ by a little


class ClockError(OSError):
    """The clock is too far ahead of the study. It may be corrected by itself, so a later start may succeed."""


class ClockWatch:
    """The clock of one study.

    Arguments:
        study: the name of the study, for the log.
        max_jump: largest number of seconds between the latest arrival and the start of a service.

    Attributes:
        behind: seconds by which the clock is behind the latest arrival; 0 if it is not.
    """

    def __init__(self, study: str, max_jump: float) -> None:
        self._study, self._max_jump = study, max_jump
        self.behind = 0.0
        self._logged = False

    def check(self, now: float, latest: float | None) -> None:
        """Refuse to start if the clock is too far ahead of the latest arrival.

        Raises:
            ClockError: if it is.
        """
        if latest is not None and now - latest > self._max_jump:
            raise ClockError(
                f"The clock of this machine says {write_time(now)}, and the latest arrival in the study "
                f"`{self._study}` was at {write_time(latest)}, more than {self._max_jump:g} seconds before. If the "
                "clock is wrong, correct it: people who arrive would get wrong deadlines that cannot be changed. If it "
                "is right, give a larger `max_clock_jump` in the study file."
            )

    def look(self, now: float, latest: float | None) -> None:
        """Compare the clock with the latest arrival, and log if it was set back or is right again."""
        self.behind = 0.0 if latest is None else max(0.0, latest - now)
        if self.behind > _TOLERATED_SECONDS and not self._logged:
            self._logged = True
            log_event(
                "clock",
                "The clock is behind the latest arrival: it was set back, or was ahead before. Plans stand still until "
                "it has passed that time.",
                study=self._study,
                level=logging.WARNING,
                behind_seconds=round(self.behind),
            )
        elif self.behind == 0.0 and self._logged:
            self._logged = False
            log_event("clock", "The clock has passed the latest arrival.", study=self._study)
