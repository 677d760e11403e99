"""The last steps of a study before its result is returned: withhold the policy, add names and statements, sign."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privrl.privacy.accounting.certificate import Certificate, check_stated
from privrl.privacy.accounting.privacy_budget import PrivacyWarning
from privrl.privacy.accounting.signature import read_private_key
from privrl.studies.results.result import Result

_LARGE_DELTA = 1e-5
SigningKey = Ed25519PrivateKey | str | Path
"""A private key, or the path of a PEM file with one."""


@dataclass(frozen=True)
class Finish:
    """What is done with a result. Making one checks the statements and reads the key, before anything is spent.

    Attributes:
        require_better: withhold the policy unless it was shown to be better than current practice.
        names: names of states and actions for reports.
        stated: what the study team states about the study, such as its purpose.
        key: signs the certificate.
    """

    require_better: bool
    names: Mapping[str, Sequence[str]]
    stated: Mapping[str, str]
    key: Ed25519PrivateKey | None

    @classmethod
    def of(
        cls,
        require_better: bool,
        names: Mapping[str, Sequence[str]],
        stated: Mapping[str, str | None],
        sign: SigningKey | None,
    ) -> "Finish":
        given = {name.replace("_", " "): text for name, text in stated.items() if text is not None}
        check_stated(given)
        key = read_private_key(sign) if isinstance(sign, str | Path) else sign
        return cls(require_better, names, given, key)

    def __call__(self, result: Result) -> Result:
        """The finished result."""
        better = result.evaluation is not None and result.evaluation.verdict == "better"
        if self.require_better and not better:
            result = result.withheld("it was not shown to be better than practice, which was required")
        names = {name: list(given) for name, given in self.names.items() if given}
        result = result.reporting({**result.report, **({"names": names} if names else {})})
        result = replace(result, certificate=result.certificate.stating(self.stated))
        warn_of_delta(result.certificate, result.users)
        return result if self.key is None else result.signed(self.key)


def warn_of_delta(certificate: Certificate, users: int | None) -> None:
    """Warns of a large delta: compared with the number of people if that is public, else with a fixed number."""
    if users is None and certificate.delta > _LARGE_DELTA:
        warnings.warn(
            f"`delta` is {certificate.delta:g}, and the number of people is not public here. Choose one well below one "
            f"over that number; {_LARGE_DELTA:g} or less is usual.",
            PrivacyWarning,
            stacklevel=4,
        )
    if users is not None and certificate.delta * users > 1:
        warnings.warn(
            "`delta` is above one over the number of people; choose a smaller one.", PrivacyWarning, stacklevel=4
        )
