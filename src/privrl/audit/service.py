"""Attacks on a running service, over HTTP: a local study as a hostile device, a central one as a hostile app."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from privrl.audit.findings import Finding, json_of
from privrl.audit.service_answers import Caller, Send
from privrl.audit.service_app import HostileApp
from privrl.audit.service_client import HostileDevice


@dataclass(frozen=True)
class ServiceReport:
    """What was tried on one study and found. **Nothing found proves nothing.**"""

    study: str
    kind: Literal["central", "local"]
    attacks: tuple[Finding, ...]

    @property
    def broken(self) -> bool:
        """Whether any attack succeeded."""
        return any(finding.broken for finding in self.attacks)

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return json_of(self, attacks=[finding.to_json() for finding in self.attacks], broken=self.broken)


def service_attacks(send: Send, study: str, *, key: str = "", seed: int) -> ServiceReport:
    """Attacks one study of a service. It takes places of the study and spoils its sums: use one made for this.

    Arguments:
        send: what reaches the service, see `over_http`.
        study: its name.
        key: an app's, for a central study; a device's, where devices need one.
        seed: of what is changed where, and of the ids of invented people.
    """
    call, rng = Caller(send, study, key), np.random.default_rng(seed)
    seen = call("GET")
    content = seen.json()
    if seen.status != 200 or not isinstance(content, dict):
        raise ValueError(f"There is no study `{study}` there ({seen.status} {seen.reason}).")
    if "parts" in content:
        return ServiceReport(study, "local", HostileDevice(call, rng).attacks())
    return ServiceReport(study, "central", HostileApp(call, rng).attacks())
