"""A clock that is set back, or far ahead: logged, measured, refused at start, and harmless for privacy."""

import logging
from pathlib import Path

import pytest
from clocks import Clock
from service.serving import CENTRAL, Service, serving, study_file

from privrl.cli.main import main
from privrl.service.clock_watch import ClockError
from privrl.service.status import study_status

DAY = 86_400.0


def catch_up(service: Service) -> None:
    service.run(service.served.run_in_writer(lambda store: service.served._plan()))


def test_a_clock_that_is_set_back_is_logged_once_and_measured(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Deadlines never decrease, so the block of a person who arrives meanwhile is none the wiser."""
    clock = Clock(5_000.0)
    caplog.set_level(logging.INFO)
    with serving(study_file(tmp_path, CENTRAL), clock) as river:
        first = river.ask("POST", "tickets", {"user": "anna"}).json
        clock.time -= 3_600.0
        catch_up(river)
        catch_up(river)
        (line,) = [record for record in caplog.records if vars(record).get("event") == "clock"]
        assert "Plans stand still" in line.getMessage() and vars(line)["facts"] == {"behind_seconds": 3600}
        assert study_status(river.served).clock_behind == 3_600.0
        assert river.ask("POST", "tickets", {"user": "ben"}).json["deadline"] == first["deadline"]
        clock.time += 3_600.0
        catch_up(river)
        assert [vars(record).get("event") for record in caplog.records].count("clock") == 2
        assert study_status(river.served).clock_behind == 0.0


def test_a_clock_that_is_far_ahead_is_refused_at_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It may be corrected by itself, so the process ends with 1, and a supervisor starts it again."""
    file = study_file(tmp_path, CENTRAL, max_clock_jump=10 * DAY)
    with serving(file, Clock(0.0)) as river:
        river.ask("POST", "tickets", {"user": "anna"})
    with pytest.raises(ClockError, match=r"1970-01-11T00:00:01Z.*max_clock_jump"), serving(file, Clock(10 * DAY + 1)):
        pass
    assert "give a larger `max_clock_jump`" in caplog.text  # a process that serves other studies goes on
    with serving(file, Clock(10 * DAY)):
        pass
    assert main(["serve", "run", str(file.path), "--listen", "127.0.0.1:0", "--operator", "127.0.0.1:0"]) == 1
