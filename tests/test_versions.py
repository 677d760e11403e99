"""Two versions of privrl on one store: the same minor version continues a study, and serves it; another one refuses."""

from pathlib import Path

import pytest
from clocks import Clock
from service.serving import CENTRAL, LOCAL, serving, study_file
from test_agent_arrivals import live

from privrl.privacy.store.errors import StudyMismatchError
from privrl.privacy.store.release_store import ReleaseStore
from privrl.studies import study


def pretend(monkeypatch: pytest.MonkeyPatch, number: str) -> None:
    monkeypatch.setattr(study, "version", lambda package: number)


def test_an_agent_continues_a_study_of_its_minor_version(
    tmp_path: Path, place: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, "0.2.0")
    with ReleaseStore(place) as store, ReleaseStore(place) as other:  # two machines
        live(store, Clock()).begin_episode("anna")
        pretend(monkeypatch, "0.2.11")
        assert live(other, Clock()).num_arrived == 1
        for another in ("0.3.0", "1.2.0", "0.20.0"):
            pretend(monkeypatch, another)
            with pytest.raises(StudyMismatchError, match="differs in `minor version of privrl`"):
                live(other, Clock())


@pytest.mark.parametrize("text", [CENTRAL, LOCAL], ids=["central", "local"])
def test_a_service_of_another_minor_version_does_not_start(
    tmp_path: Path, place: Path | str, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    pretend(monkeypatch, "0.2.0")
    file = study_file(tmp_path, text, place)
    with serving(file):
        pretend(monkeypatch, "0.2.1")
        with serving(file):
            pass
        pretend(monkeypatch, "0.3.0")
        with pytest.raises(StudyMismatchError, match="minor version of privrl"), serving(file):
            pass
