"""A service whose store is an older copy does not start; one whose log lags by a crash does."""

import shutil
from pathlib import Path

import pytest
from clocks import Clock
from service.serving import CENTRAL, serving, study_file

from privrl.privacy.store.errors import AuditLogError, BehindLogError
from privrl.service.study_file import StudyFile


def closed_block(file: StudyFile, user: str, clock: Clock) -> int:
    """Lets everybody of the first blocks arrive, and their time pass; the plan that is out then."""
    with serving(file, clock) as service:
        for number in range(20):
            service.ask("POST", "tickets", {"user": f"{user} {number}"})
        clock.time += 2_000.0
        service.ask("POST", "tickets", {"user": f"{user} late"})
        return service.ask("GET", "plan").json["plan"]


def test_an_older_copy_of_the_store_is_not_served(tmp_path: Path) -> None:
    clock = Clock()
    file = study_file(tmp_path, CENTRAL)
    store, log = Path(file.place), file.log_place
    shutil.copy(store, tmp_path / "backup.db")  # before anybody came, while nothing is open
    assert closed_block(file, "anna", clock) == 1
    released = [line for line in log.read_text().splitlines() if '"kind":"value"' in line]
    assert released and store.with_name(f"{store.name}-wal").exists() is False
    whole = log.read_bytes()

    shutil.copy(tmp_path / "backup.db", store)
    with pytest.raises(BehindLogError, match="older copy was restored"), serving(file, clock):
        pass
    assert log.read_bytes() == whole


def test_a_log_that_was_cut_stops_the_service_and_a_torn_one_does_not(tmp_path: Path) -> None:
    clock = Clock()
    file = study_file(tmp_path, CENTRAL)
    closed_block(file, "anna", clock)
    whole = file.log_place.read_bytes()
    file.log_place.write_bytes(b"\n".join(whole.split(b"\n")[:-3]) + b"\n")
    with pytest.raises(AuditLogError, match="the end of the log was cut off"), serving(file, clock):
        pass
    file.log_place.write_bytes(whole[:-30])
    with serving(file, clock) as service:
        assert service.ask("GET", "plan").status == 200
    assert file.log_place.read_bytes() == whole
