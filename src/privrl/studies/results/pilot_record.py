"""What a pilot has shown so far: its protocol, every look and the certificate; saved as a folder.

`pilot.json` holds the protocol and the looks, `certificate.json` names its hash and the protocol that the guarantee is
derived from. Nothing else is written: everything in it is a function of the protocol, of arrivals, arms and groups, and
of releases.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from privrl.contracts.untrusted import read_bytes, read_json
from privrl.learners.trials.looks import Look
from privrl.learners.trials.protocol import Protocol
from privrl.learners.trials.trial import Trial
from privrl.privacy.accounting.certificate import Certificate, read_certificate
from privrl.studies.learner_settings import settings_of
from privrl.studies.results.binding import CERTIFICATE, hash_files, json_bytes, policy_sha256
from privrl.writing import whole_folder

PILOT = "pilot.json"
FILES = (PILOT, CERTIFICATE)
"""The files of a saved record."""
_FORMAT = "privrl pilot, 1"
_INFINITE = {  # what null stands for in a look, by the name of the entry
    **dict.fromkeys(("upper", "lower", "high", "mean_se", "se"), math.inf),
    "low": -math.inf,
    "mean": math.nan,
}


@dataclass(frozen=True)
class PilotRecord:
    """A pilot as its reports show it.

    Attributes:
        protocol: what was fixed before the first person was enrolled.
        looks: what every look has shown.
        certificate: a bound on what all releases, past and future, can reveal.
    """

    protocol: Protocol
    looks: tuple[Look, ...]
    certificate: Certificate

    @property
    def sentence(self) -> str:
        """The result so far in one sentence."""
        return self.looks[-1].sentence if self.looks else "No look has been made yet."

    @property
    def serving(self) -> str | None:
        """The arm that every new person gets because the trial has ended; `None` while it goes on."""
        return (self.looks[-1].serving or None) if self.looks else None

    def to_json(self) -> dict[str, Any]:
        """The protocol and the looks as JSON; null for numbers that are not finite."""
        return {
            "format": _FORMAT,
            "protocol": self.protocol.to_json(),
            "sha256": self.protocol.sha256,
            "looks": [_finite(dataclasses.asdict(look)) for look in self.looks],
            "verdict": self.sentence,
            "serving": self.serving,
        }

    def save(self, folder: str | Path) -> Path:
        """Writes `pilot.json` and `certificate.json` to a folder, all or nothing; an older record there is replaced."""
        content = json_bytes(self.to_json())
        files = hash_files({PILOT: content})
        certificate = dataclasses.replace(self.certificate, result_sha256=policy_sha256(None), files=files)
        with whole_folder(folder, FILES) as scratch:
            (scratch / PILOT).write_bytes(content)
            (scratch / CERTIFICATE).write_text(json.dumps(certificate.to_json(), indent=2, allow_nan=False))
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path) -> "PilotRecord":
        """Reads what `save` wrote.

        Raises:
            ValueError: a file is missing, malformed, or not the one that the certificate names, or the certificate
                is that of another protocol.
        """
        folder = Path(folder)
        content = read_bytes(folder / PILOT)
        certificate = read_certificate(read_bytes(folder / CERTIFICATE))
        if dict(certificate.files) != hash_files({PILOT: content}):
            raise ValueError(f"`{PILOT}` in `{folder}` is not the file that the certificate names. Do not use it.")
        protocol, looks = read_looks(read_json(content, f"`{PILOT}`"))
        if certificate.study is None or certificate.study["learner"] != settings_of(Trial(protocol)):
            raise ValueError(
                f"The certificate in `{folder}` is that of another protocol than `{PILOT}`. Do not use it."
            )
        return cls(protocol, looks, certificate)


def read_looks(content: Any) -> tuple[Protocol, tuple[Look, ...]]:
    """The protocol and the looks of what `PilotRecord.to_json` wrote.

    Raises:
        ValueError: it is something else.
    """
    try:
        if content["format"] != _FORMAT:
            raise ValueError(f"`format` must be {_FORMAT!r}.")
        looks = tuple(msgspec.convert(_restored(look), Look) for look in content["looks"])
        protocol = Protocol.from_json(content["protocol"])
        if content["sha256"] != protocol.sha256:
            raise ValueError("`sha256` is not that of the protocol.")
        return protocol, looks
    except (KeyError, TypeError, msgspec.ValidationError, ValueError) as error:
        raise ValueError(f"`{PILOT}` is not the record of a pilot, or is damaged.") from error


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _restored(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _INFINITE[name] if one is None else _restored(one) for name, one in value.items()}
    return [_restored(one) for one in value] if isinstance(value, list) else value
