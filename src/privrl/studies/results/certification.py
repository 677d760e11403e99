"""`certify`: checks that a certificate holds, and that it belongs to a policy.

A certificate is *consistent* if every number in it follows from the settings that it records, and if it names the
policy that it came with. Anyone can write a consistent file. A certificate is *authenticated* if the owner of a given
key has signed it.

Only a signature vouches for the rest: that the program ran with these settings; the unit (its name, and
`records_per_unit`), the source of the noise, notes, version and date; and the arrays whose numbers were not kept.
"""

import datetime
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict, TypeVar, Unpack

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from privrl.contracts.learner import AbstractAnalysis, AbstractOfflineAnalysis, AbstractOnlineLearner
from privrl.contracts.untrusted import read_bytes
from privrl.learners.published_noise import published
from privrl.privacy.accounting.certificate import Certificate, read_certificate
from privrl.privacy.accounting.certificate_check import Derived, cost_problems, derived_problems, release_problems, same
from privrl.privacy.accounting.privatizer_settings import UnknownPrivatizerError, function_name, rebuild_privatizer
from privrl.privacy.accounting.signature import SignatureError
from privrl.privacy.continual.participation import Participation
from privrl.privacy.trust.privatizers import AbstractPrivatizer
from privrl.studies.open_ended import OpenEnded
from privrl.studies.rebuilt import NotOursError, is_complete, learner_of
from privrl.studies.results.binding import CERTIFICATE, EVALUATION, EVALUATION_CERTIFICATE, SavedFiles, policy_sha256
from privrl.studies.results.certified_evaluation import CertifiedEvaluation
from privrl.studies.results.pilot_record import PILOT, PilotRecord
from privrl.studies.results.result import Result
from privrl.studies.study import Study, participation_of

_Answer = TypeVar("_Answer")
_FUNCTIONS = {function_name(function): function for function in published}
_LONGEST_REASON = 500  # characters of an error, which may quote the file


@dataclass(frozen=True)
class Check:
    """The outcome of one check, with the reason if it failed; `of_file` if it concerns a file of the folder."""

    name: str
    ok: bool
    reason: str = ""
    of_file: bool = False


class Requirements(TypedDict, total=False):
    """What `certify` can require of a certificate; its arguments describe them."""

    max_epsilon: float | None
    max_delta: float | None
    unit: str | None
    adjacency: str | None
    allow_non_private: bool


@dataclass(frozen=True)
class Verdict:
    """The outcome of all checks of `certify`.

    Attributes:
        checks: in the order in which they ran.
        authenticated: whether the owner of the given key signed this certificate.
    """

    checks: tuple[Check, ...]
    authenticated: bool

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    @property
    def files_ok(self) -> bool:
        """Whether every file is the one that a certificate names. Only then may it be shown."""
        return all(check.ok for check in self.checks if check.of_file)

    @property
    def problems(self) -> list[str]:
        return [check.reason for check in self.checks if not check.ok]

    @property
    def words(self) -> str:
        """The verdict in one line."""
        if not self.ok:
            return "does NOT hold"
        return "consistent and authenticated" if self.authenticated else "consistent, not authenticated"

    def to_json(self) -> dict[str, object]:
        """Plain JSON: every check by name."""
        return {
            "ok": self.ok,
            "verdict": self.words,
            "authenticated": self.authenticated,
            "checks": {check.name: {"ok": check.ok, "reason": check.reason} for check in self.checks},
        }


def certify(
    certificate: Certificate,
    policy: object,
    *,
    public_key: Ed25519PublicKey | None = None,
    max_epsilon: float | None = None,
    max_delta: float | None = None,
    unit: str | None = None,
    adjacency: str | None = None,
    allow_non_private: bool = False,
) -> Verdict:
    """Checks that a certificate is consistent and meets your requirements.

    >>> result = privrl.fit("env:riverswim", "dp-apvi", epsilon=1, delta=1e-6, episodes=200, key=0)
    >>> verdict = privrl.certify(result.certificate, result.policy, max_epsilon=1)
    >>> verdict.ok  # simulated noise protects no one
    False
    >>> [check.name for check in verdict.checks if not check.ok]
    ['private']

    Arguments:
        certificate, policy: as saved; `Result.load` reads both.
        public_key: the key that must have signed. Without a key nothing is authenticated, signature or not.
        max_epsilon, max_delta: the largest values that you accept.
        unit, adjacency: the only unit and adjacency that you accept.
        allow_non_private: accept a result that protects no one.

    Returns:
        every check, with the reason if it failed. A malformed certificate fails its checks.

    Raises:
        TypeError: `certificate` is not a `Certificate`. The content of a file never raises.
    """
    if not isinstance(certificate, Certificate):
        raise TypeError(f"`certificate` is a `{type(certificate).__name__}`; give that of a `Result`.")
    signature = [] if public_key is None else [_signature(certificate, public_key)]
    authenticated = any(check.ok for check in signature)
    exposed = _exposed(certificate)
    checks = [
        *signature,
        _check("policy", _policy_problems(certificate, policy)),
        _guarded("cost", lambda: cost_problems(certificate)),
        _guarded("releases", lambda: release_problems(certificate)),
        _guarded("settings", lambda: _settings_problems(certificate, authenticated)),
        _check("date", [] if _is_date(certificate.opened) else ["`opened` is not a date."]),
        _check("private", [] if allow_non_private else exposed),
    ]
    for what, most, stated in (("epsilon", max_epsilon, certificate.epsilon), ("delta", max_delta, certificate.delta)):
        if most is not None:
            checks.append(_guarded(f"max-{what}", functools.partial(_above, what, stated, most)))
    for name, wanted, found in (("unit", unit, certificate.unit), ("adjacency", adjacency, certificate.adjacency)):
        if wanted is not None:
            checks.append(_check(name, [] if found == wanted else [f"`{name}` is {found!r}; {wanted!r} is required."]))
    return Verdict(tuple(checks), authenticated)


def certify_result(
    result: Result, *, public_key: Ed25519PublicKey | None = None, **asked: Unpack[Requirements]
) -> Verdict:
    """Checks the certificate of a result, and that of its evaluation if it has its own.

    Arguments:
        result: a result in memory; `certify_folder` checks the files of a saved one too.
        public_key: the key that must have signed the policy's certificate, and the other one if it is signed.
        asked: the other arguments of `certify`, for each of the two; `max_epsilon` also for both together.
    """
    verdict = certify(result.certificate, result.policy, public_key=public_key, **asked)
    evaluation, most = result.evaluation, asked.get("max_epsilon")
    if not isinstance(evaluation, CertifiedEvaluation):
        return verdict
    own = evaluation.certificate
    checks = list(certify(own, result.policy, public_key=public_key if own.signature else None, **asked).checks)
    if most is not None:
        checks.append(_guarded("together", lambda: _together_above(evaluation, result.certificate, most)))
    named = (replace(check, name=f"evaluation: {check.name}") for check in checks)
    return replace(verdict, checks=(*verdict.checks, *named))


def certify_folder(
    saved: SavedFiles,
    policy: object = None,
    *,
    public_key: Ed25519PublicKey | None = None,
    **asked: Unpack[Requirements],
) -> Verdict:
    """Checks a saved result, or an evaluation in a folder of its own: every file, and the certificates.

    Every file must be the one that a certificate names. With `public_key`, or if the policy's certificate is signed,
    an evaluation that was added later must be signed too.

    Arguments:
        saved: the folder as it was read.
        policy: the policy that an evaluation in a folder of its own is about; without it, that is not checked.
        public_key: the key that must have signed.
        asked: the other arguments of `certify`.
    """
    files = saved.problems()
    certificate = saved.certificate or saved.evaluation_certificate
    if certificate is None:
        raise ValueError(f"There is no certificate in `{saved.folder}`.")
    if saved.certificate is None:
        verdict = certify(certificate, policy, public_key=public_key, **asked)
        unknown = policy is None
    elif any(files.values()):
        verdict, unknown = certify(certificate, None, public_key=public_key, **asked), True
    else:
        verdict = certify_result(Result.from_files(saved), public_key=public_key, **asked)
        unknown = False
        files |= _unsigned(saved, public_key)
    checks = tuple(check for check in verdict.checks if not (unknown and check.name == "policy"))
    named = (Check(name, not problem, problem, of_file=True) for name, problem in files.items())
    return replace(verdict, checks=(*checks, *named))


def certify_pilot(
    folder: Path, *, public_key: Ed25519PublicKey | None = None, **asked: Unpack[Requirements]
) -> tuple[Certificate, Verdict]:
    """Checks the saved record of a pilot: its certificate, and that `pilot.json` is the file and the protocol of it.

    Arguments:
        folder: what `PilotRecord.save` wrote.
        public_key: the key that must have signed.
        asked: the other arguments of `certify`.
    """
    certificate = read_certificate(read_bytes(folder / CERTIFICATE))
    verdict = certify(certificate, None, public_key=public_key, **asked)
    try:
        PilotRecord.load(folder)
        problem = ""
    except ValueError as error:
        problem = str(error)
    return certificate, replace(verdict, checks=(*verdict.checks, Check(PILOT, not problem, problem, of_file=True)))


def _unsigned(saved: SavedFiles, public_key: Ed25519PublicKey | None) -> dict[str, str]:
    """The files of an evaluation that was added later, if they need a signature and have none."""
    own, certificate = saved.evaluation_certificate, saved.certificate
    if own is None or certificate is None or not saved.added_later:
        return {}
    if public_key is None:
        covered = bool(own.signature) or not certificate.signature
    else:
        covered = _signature(own, public_key).ok
    why = "is not covered by a signature: it was added later. Sign an evaluation with `privrl evaluate --sign`."
    return {} if covered else {name: f"`{name}` {why}" for name in (EVALUATION, EVALUATION_CERTIFICATE)}


def _together_above(evaluation: CertifiedEvaluation, policy: Certificate, most: float) -> list[str]:
    if why := evaluation.apart_from(policy):
        return [why]
    return _above("for a person in both tables, epsilon", evaluation.together_with(policy)[0], most)


def _above(name: str, found: float, most: float) -> list[str]:
    return [] if 0.0 <= found <= most else [f"{name} is {found:.6g}; at most {most:g} is allowed."]


def _exposed(certificate: Certificate) -> list[str]:
    """Why a result protects no one, if so: it has no guarantee, or noise that can be replayed."""
    try:
        finite = certificate.notion != "none" and math.isfinite(certificate.epsilon)
    except (TypeError, OverflowError):
        finite = False
    if not finite:
        return ["This result is not private: it protects no one."]
    if certificate.noise_source == "seed":
        return ["Its noise was seeded, so it can be replayed: it protects no one."]
    return []


def _check(name: str, problems: list[str]) -> Check:
    return Check(name, not problems, " ".join(problems))


def _guarded(name: str, look: Callable[[], list[str]]) -> Check:
    """Runs a check. A file may contain anything, so an error while it is read is a failed check, not an exception."""
    try:
        return _check(name, look())
    except Exception as error:
        why = str(error) or type(error).__name__
        why = why if len(why) <= _LONGEST_REASON else f"{why[:_LONGEST_REASON]}..."
        return Check(name, False, f"It cannot be checked, because it is malformed: {why}")


def _signature(certificate: Certificate, key: Ed25519PublicKey) -> Check:
    try:
        certificate.verify(key)
    except SignatureError as error:
        return Check("signature", False, str(error))
    except (TypeError, ValueError):
        return Check("signature", False, "The signature is malformed.")
    return Check("signature", True)


def _policy_problems(certificate: Certificate, policy: object) -> list[str]:
    if not certificate.result_sha256:
        return ["It names no policy, so it could belong to any. Older versions of privrl saved such results."]
    if certificate.result_sha256 != policy_sha256(policy):
        return ["The policy is not the one that this certificate is about."]
    return []


def _is_date(text: str) -> bool:
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except (TypeError, ValueError):
        return False


def _settings_problems(certificate: Certificate, authenticated: bool) -> list[str]:
    """What does not follow from the recorded settings. If nothing can be derived from them, only a signature helps."""
    study = certificate.study
    if study is None:
        return ["It records no settings from which it could be derived."]
    try:
        learner = learner_of(study["learner"])
        privatizer = rebuild_privatizer(study["privatizer"], _FUNCTIONS)
        enforced = _plain(_asked(learner, learner.bounds))
        rebuilt = _asked(learner, lambda: _study(learner, certificate, study["users"], privatizer))
    except (NotOursError, UnknownPrivatizerError) as error:
        return [] if authenticated else [f"{error} Only a signature can vouch for it: use `--public-key`."]
    online = study["users"] is not None
    follows = {
        "learner": type(learner).__name__,
        "notion": "joint" if online and privatizer.notion == "central" else privatizer.notion,
        "bounds": enforced,
        "return_range": _plain(learner.return_range),
        "relation": rebuilt.relation,
        "neighbours": rebuilt.neighbours,
        "group_shares": rebuilt.ledger.groups,
        **rebuilt.count_records(certificate.records_per_unit or 1),
    }
    records = 1 if online else certificate.records_per_unit or 1
    derived = Derived(privatizer, rebuilt.declared, records, rebuilt.participation)
    return [
        f"`{name}` is not what the settings give."
        for name, value in follows.items()
        if not same(_plain(getattr(certificate, name)), value, 1e-9)
    ] + derived_problems(certificate, derived)


def _asked(learner: AbstractAnalysis, question: Callable[[], _Answer]) -> _Answer:
    """The answer of a rebuilt learner. It has none if the answer depends on an array whose numbers were not kept."""
    try:
        return question()
    except (AttributeError, TypeError) as error:
        if is_complete(learner):
            raise
        raise NotOursError("What it declares depends on an array of which only a hash was kept.") from error


def _study(
    learner: AbstractAnalysis,
    certificate: Certificate,
    users: int | Mapping[str, object] | None,
    privatizer: AbstractPrivatizer,
) -> Study:
    """The study of this learner with this number of people, or of one person's messages if no number is fixed.

    The certificate states how much of one person counts; the rest is derived from that.
    """
    if isinstance(learner, AbstractOfflineAnalysis):
        if users is not None:
            raise ValueError("a table has no schedule of people.")
        if certificate.records_per_unit is not None and certificate.records_per_unit < 1:
            raise ValueError("at least one record of each unit counts.")
        return Study.offline(learner, privatizer, "")
    assert isinstance(learner, AbstractOnlineLearner)
    if users is None and privatizer.notion != "local":
        raise ValueError("the number of people is missing.")
    if users is None:
        return Study.local(learner, privatizer, Participation(certificate.messages_per_user or 1))
    often = participation_of(certificate.records_per_unit or 1, certificate.block_distance)
    return Study.online(learner, privatizer, OpenEnded.from_json(users) if isinstance(users, Mapping) else users, often)


def _plain(content: object) -> object:
    """Tuples as lists, as in JSON."""
    if isinstance(content, Mapping):
        return {key: _plain(value) for key, value in content.items()}
    return [_plain(one) for one in content] if isinstance(content, (list, tuple)) else content
