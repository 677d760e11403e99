"""What learning from records returns: a policy, its certificate and its evaluation, saved as a folder."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

import jax.numpy as jnp
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privrl.contracts.policy import AbstractPolicy
from privrl.contracts.printing import html_table, short_repr
from privrl.contracts.untrusted import convert, read_json
from privrl.evaluation.decision import Decision, DecisionOutcome, Reason, gives_advice
from privrl.evaluation.estimates import Evaluation
from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.types import TabularPolicy
from privrl.privacy.accounting.certificate import Certificate
from privrl.studies.learner_settings import without_numbers
from privrl.studies.results.binding import (
    ADVICE,
    CERTIFICATE,
    EVALUATION,
    EXPORTED,
    KNOWN,
    POLICY,
    REPORT,
    SavedFiles,
    hash_files,
    json_bytes,
    policy_sha256,
)
from privrl.studies.results.certified_evaluation import CertifiedEvaluation, read_evaluation
from privrl.studies.results.saved_policies import export_policy, is_exported, policy_bytes, read_policy
from privrl.writing import whole_folder

if TYPE_CHECKING:
    import pyarrow as pa


def public_facts(certificate: Certificate, facts: Mapping[str, object]) -> dict[str, object]:
    """The facts about a result that may be shown: the one place that decides it, for every output.

    The number of people is public if neighbours replace one person; the number of their episodes only if, besides,
    every person has exactly one. How long something took depends on the records, and is never a fact. A result without
    privacy hides nothing.

    **Formal guarantee.** What is returned is the same for neighbouring data sets, if the other facts are.
    """
    if certificate.notion == "none":
        return dict(facts)
    secret = set() if certificate.adjacency == "replace-one" else {"users", "episodes"}
    if certificate.records_per_unit not in (None, 1):
        secret.add("episodes")
    return {name: value for name, value in facts.items() if name not in secret}


@dataclass(frozen=True)
class Result:
    """A policy and what it can reveal.

    >>> result = privrl.fit("env:riverswim", "dp-apvi", epsilon=1, delta=1e-6, episodes=200, key=0)
    >>> folder = result.save("policy")
    >>> privrl.Result.load(folder)
    Result(released without evidence, TabularPolicy, APVI, central privacy, epsilon 1, delta 1e-06, simulated noise)
    >>> result.report["users"]
    200

    The certificate is bound to the policy (`result_sha256`) when a result is made, and to every file (`files`) when it
    is signed or saved. `report` holds sizes, values, baselines, and what releases say about states (`Situations`, and
    values of states if the learner gives any); of the sizes only those that are public (`public_facts`). If the result
    was compared with practice, `evaluation` says how, the policy is the assisted one, and `advice` the whole advice
    behind it.

    Raises:
        ValueError: a folder that is loaded is damaged, or has files that its certificate does not name.
    """

    policy: AbstractPolicy | None  # a policy of privrl or of a registered class, an assisted one, or `None`: withheld
    certificate: Certificate
    report: dict[str, object] = field(default_factory=dict)
    advice: AbstractPolicy | None = None
    evaluation: Evaluation | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "report", public_facts(self.certificate, self.report))
        if not self.certificate.result_sha256 and is_dataclass(self.policy):
            bound = replace(self.certificate, result_sha256=policy_sha256(self.policy))
            object.__setattr__(self, "certificate", bound)

    def __repr__(self) -> str:
        decided = "" if self.decision is None else self.decision.outcome
        what = "no policy" if self.policy is None else type(self.policy).__name__
        compared = "" if self.evaluation is None else f"evaluation: {self.evaluation.verdict}"
        return short_repr("Result", decided, what, self.certificate.learner, self.certificate.guarantee, compared)

    def _repr_html_(self) -> str:
        rows = {
            "Decision": "" if self.decision is None else self.decision.statement,
            "Policy": "none" if self.policy is None else type(self.policy).__name__,
            "People": self.report.get("users"),
            "Evaluation": "" if self.evaluation is None else self.evaluation.line,
        }
        return html_table(f"Result ({self.certificate.learner})", rows | self.certificate.summary())

    @property
    def facts(self) -> "ReportFacts":
        """The report, with the types of those facts that privrl reads again."""
        return cast(ReportFacts, self.report)

    @property
    def users(self) -> int | None:
        """The number of people, if it is public."""
        return cast(ReportFacts, self.report).get("users")

    @property
    def rules(self) -> list[str]:
        """The rules that the policy keeps, as they were written, and a sentence on a choice."""
        return cast(ReportFacts, self.report).get("rules", [])

    @property
    def decision(self) -> Decision | None:
        """What was decided about the policy, computed from the policy itself and from its evaluation.

        `None` if the records were not made under current practice: the secret is a function, or people arrived.
        """
        if self.certificate.notion not in ("central", "none") or self.certificate.relation != "record":
            return None
        if self.evaluation is None:
            outcome: DecisionOutcome = "released without evidence" if gives_advice(self.policy) else "withheld"
            return Decision(outcome, None if gives_advice(self.policy) else 0.0, (Reason.NOT_COMPARED,))
        decided = self.evaluation.decide_on(self.policy)
        if self.policy is None and self.evaluation.verdict != "better":
            return replace(decided, reasons=(*decided.reasons, Reason.REQUIRED_BETTER))
        return decided

    def reporting(self, facts: Mapping[str, object]) -> "Result":
        """The same result with this report, which must come before a signature."""
        if self.certificate.signature:
            raise ValueError("The certificate is signed already, and names its report. Report first, then sign.")
        return replace(self, report=dict(facts))

    def signed(self, key: Ed25519PrivateKey) -> "Result":
        """The same result with a signed certificate, which names the hash of every file that `save` writes."""
        return replace(self, certificate=self._bound(self.contents()).signed(key))

    def withheld(self, why: str) -> "Result":
        """What was spent and found, without the policy: its certificate is bound to no policy and says why.

        An evaluation with a certificate of its own keeps that, bound to no policy either; its settings, among which the
        advice is, keep the shapes of arrays and lose their numbers.
        """
        evaluation = self.evaluation
        own = evaluation.certificate if isinstance(evaluation, CertifiedEvaluation) else None
        if self.certificate.signature or (own is not None and own.signature):
            raise ValueError("The certificate is signed already, and names the policy. Withhold first, then sign.")
        if evaluation is not None:
            given = evaluation.policy
            limits = (given.max_ratio, given.max_weight)
            empty = AssistedPolicy(jnp.zeros(0, int), jnp.zeros(0), *limits, horizon=given.horizon)
            evaluation = replace(evaluation, policy=empty)
        none = policy_sha256(None)
        if own is not None and evaluation is not None:
            study = own.study
            if study is not None:
                study = {**study, "learner": without_numbers(study["learner"])}
            evaluation = CertifiedEvaluation.of(evaluation, replace(own, result_sha256=none, study=study))
        note = f"the budget is spent, and there is no policy: {why}"
        certificate = replace(self.certificate, result_sha256=none, notes=(*self.certificate.notes, note))
        kept = {name: fact for name, fact in self.report.items() if name not in ("situations", "values", "strength")}
        return Result(None, certificate, {**kept, "policy": None}, None, evaluation)

    def contents(self) -> dict[str, bytes]:
        """The files that `save` writes besides `certificate.json`, by name."""
        found = {REPORT: json_bytes(_finite(self.report))}
        for name, policy in ((POLICY, self.policy), (ADVICE, self.advice)):
            if policy is not None:
                found[name] = policy_bytes(policy)
        exported = export_policy(self.policy, self.report)
        if exported is not None:
            found[EXPORTED] = json_bytes(exported, indent=None)
        if isinstance(self.evaluation, CertifiedEvaluation):
            found |= self.evaluation.contents()
        elif self.evaluation is not None:
            found[EVALUATION] = json_bytes(self.evaluation.to_json())
        return found

    def table(self) -> "pa.Table":
        """The policy as an Arrow table: a row for each step, state and action, with its probability.

        >>> result = privrl.fit("env:riverswim", "dp-apvi", epsilon=1, delta=1e-6, episodes=200, key=0)
        >>> result.table().column_names
        ['step', 'state', 'action', 'probability']

        An assisted policy has a row for each state, with its advice, the support of the advice in current practice, and
        its strength.

        Raises:
            TypeError: the policy is not a table, for example because it decides by measurements, or was withheld.
        """
        import pyarrow as pa  # a service works without it

        if isinstance(self.policy, TabularPolicy):
            shares = np.asarray(self.policy.probabilities)
            steps, states, actions = (axis.ravel() for axis in np.indices(shares.shape))
            return pa.table({"step": steps, "state": states, "action": actions, "probability": shares.ravel()})
        if isinstance(self.policy, AssistedPolicy):
            own = {name: self.policy.arrays()[name] for name in ("advice", "support", "strength")}
            return pa.table({"state": np.arange(len(self.policy.advice)), **own})
        kind = "no policy" if self.policy is None else f"a `{type(self.policy).__name__}`"
        raise TypeError(f"This result holds {kind}, which is not a table of states and actions.")

    def _bound(self, contents: Mapping[str, bytes]) -> Certificate:
        """The certificate with the hashes of these files; one that is signed must name them already."""
        files = hash_files(contents)
        if not self.certificate.signature:
            return replace(self.certificate, files=files)
        if dict(self.certificate.files) != files:
            raise ValueError(
                "The certificate is signed, and names other files than this result would write. Copy the signed folder "
                "as it is, or sign the changed result."
            )
        return self.certificate

    def save(self, folder: str | Path, *, sign: Ed25519PrivateKey | None = None, overwrite: bool = True) -> Path:
        """Writes `certificate.json`, `policy.npz` and `report.json` to a new folder, all or nothing; with an evaluation
        also `evaluation.json` and the whole advice, `advice.npz`; and a policy on states or measurements also as
        `policy.json`, for programs elsewhere. The certificate names the hash of every other file.

        Nothing else is written: no record, no exact count that the certificate does not call public, no key. An
        existing result is replaced, unless `overwrite` is false; a folder that holds anything else is refused. With
        `sign`, a private key as `privrl.privacy.accounting.signature.read_private_key` reads it, the certificate is
        signed, and with it every file that it names.

        Raises:
            TypeError: `load` could not read the policy (see `privrl.mdp.register_policy`). Nothing was written.
        """
        contents = self.contents()
        certificate = self._bound(contents)
        certificate = certificate if sign is None else certificate.signed(sign)
        with whole_folder(folder, KNOWN, overwrite=overwrite) as scratch:
            for name, content in contents.items():
                (scratch / name).write_bytes(content)
            (scratch / CERTIFICATE).write_text(json.dumps(certificate.to_json(), indent=2, allow_nan=False))
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path) -> "Result":
        """Reads what `save` wrote; the training data are not needed. `privrl.certify` says whether to believe it.

        Raises:
            ValueError: a file is missing, malformed, or not the one that the certificate names.
        """
        return cls.from_files(SavedFiles.read(folder))

    @classmethod
    def from_files(cls, saved: SavedFiles) -> "Result":
        """The result in a folder that was read; `load` describes it."""
        contents, certificate = saved.contents, saved.certificate
        if certificate is None:
            raise ValueError(f"`{saved.folder}` is not a saved result: `{CERTIFICATE}` is missing.")
        saved.check()
        if REPORT not in contents or (POLICY not in contents and certificate.result_sha256 != policy_sha256(None)):
            raise ValueError(f"`{saved.folder}` is not a saved result: `{REPORT}` or `{POLICY}` is missing.")
        policy, advice = (
            read_policy(contents[name], f"`{name}` in `{saved.folder}`") if name in contents else None
            for name in (POLICY, ADVICE)
        )
        evaluation = read_evaluation(saved)
        own = evaluation.certificate if isinstance(evaluation, CertifiedEvaluation) else certificate
        if own.result_sha256 != certificate.result_sha256:
            raise ValueError(f"`{EVALUATION}` in `{saved.folder}` is about another policy. Do not use it.")
        report: dict[str, Any] = convert(read_json(contents[REPORT], f"`{REPORT}`"), dict, f"`{REPORT}`")
        convert(report, ReportFacts, f"`{REPORT}`")
        if EXPORTED in contents and not is_exported(policy, report, contents[EXPORTED]):
            raise ValueError(f"`{EXPORTED}` in `{saved.folder}` is not the policy in `{POLICY}`. Do not use it.")
        result = cls(policy, certificate, report, advice, evaluation)
        object.__setattr__(result, "certificate", certificate)  # never bound anew to what lies beside it
        return result


def _finite(content: object) -> object:
    """JSON with null in the place of numbers that are not finite."""
    if isinstance(content, Mapping):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


class ReportFacts(TypedDict, total=False):
    """The types of those facts in a report that privrl reads again; others are allowed."""

    users: int
    episodes: int
    recipe: str
    choice: str
    rules: list[str]
    values: list[float | None]
    strength: list[float | None]
    table: dict[str, Any]
    names: dict[str, Any]
    situations: dict[str, Any]
    truth: dict[str, float]
