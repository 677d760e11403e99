"""What the verbs return: a policy, a certificate, and for simulations the exact regret; saved as a folder."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jaxtyping import Float, Int

from privrl.evaluation.estimates import Evaluation
from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.assisted_measured import AssistedMeasuredPolicy
from privrl.mdp.measured_policy import MeasuredPolicy
from privrl.privacy.accounting.certificate import Certificate, read_certificate, unique
from privrl.studies.learner_settings import without_numbers
from privrl.studies.results.binding import REPORT_NOTE, arrays_of, evaluation_note, policy_sha256, report_note
from privrl.studies.results.certified_evaluation import CertifiedEvaluation, read_evaluation
from privrl.studies.results.saved_policies import is_exported, read_policy
from privrl.writing import whole_folder


def public_facts(certificate: Certificate, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts about a result that may be shown: the one place that decides it, for every output.

    The number of people is public if neighbours replace one person; the number of their episodes only if, besides,
    everybody has exactly one. How long something took depends on the records, and is never a fact. A result without
    privacy hides nothing.

    **Formal guarantee.** What is returned is the same for neighbouring data sets, if the other facts are.
    """
    if certificate.notion == "none":
        return dict(facts)
    secret = set() if certificate.adjacency == "replace-one" else {"users", "episodes"}
    if certificate.bounds.get("episodes per unit", 1) != 1:
        secret.add("episodes")
    return {name: value for name, value in facts.items() if name not in secret}


@dataclass(frozen=True)
class Result:
    """A policy and what it can reveal.

    The certificate is bound to the policy (`result_sha256`) and to the report (a note) when a result is made. `report`
    holds sizes, values, baselines, and what releases say about states (`Situations`, and values of states where the
    learner gives any); of the sizes only those that are public (`public_facts`): nobody gets to see the others. Where
    the result was compared with practice, `evaluation` says how, the policy is the assisted one, and `advice` the whole
    advice behind it.
    """

    policy: Any  # a `TabularPolicy`, `LinearPolicy` or `MeasuredPolicy`, an assisted one, or `None`: withheld
    certificate: Certificate
    report: dict[str, Any] = field(default_factory=dict)
    advice: Any = None
    evaluation: Evaluation | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "report", public_facts(self.certificate, self.report))
        if not self.certificate.result_sha256 and is_dataclass(self.policy):
            notes = () if self.evaluation is None else (evaluation_note(self.evaluation, self.advice),)
            bound = replace(
                self.certificate,
                result_sha256=policy_sha256(self.policy),
                notes=(*self.certificate.notes, *notes, report_note(self.report)),
            )
            object.__setattr__(self, "certificate", bound)

    @property
    def report_holds(self) -> bool:
        """Whether `report` is the one that the certificate names; where it is not, anybody may have written it."""
        return report_note(self.report) in self.certificate.notes

    def reporting(self, facts: Mapping[str, Any]) -> "Result":
        """The same result with this report, to which the certificate is bound; that must come before a signature."""
        if self.certificate.signature:
            raise ValueError("The certificate is signed already, and names its report. Report first, then sign.")
        changed = replace(self, report=dict(facts))
        kept = (note for note in self.certificate.notes if not note.startswith(REPORT_NOTE))
        return replace(changed, certificate=replace(self.certificate, notes=(*kept, report_note(changed.report))))

    def signed(self, key: Ed25519PrivateKey) -> "Result":
        """The same result with a signed certificate."""
        return replace(self, certificate=self.certificate.signed(key))

    def withheld(self, why: str) -> "Result":
        """What was spent and found, without the policy: its certificate is bound to no policy and says why.

        An evaluation with a certificate of its own keeps that, bound to no policy either; its settings, among which the
        advice is, keep the shapes of arrays and lose their numbers.
        """
        evaluation, swapped = self.evaluation, dict[str, str]()
        own = evaluation.certificate if isinstance(evaluation, CertifiedEvaluation) else None
        if self.certificate.signature or (own is not None and own.signature):
            raise ValueError("The certificate is signed already, and names the policy. Withhold first, then sign.")
        if evaluation is not None:
            settings = (evaluation.policy.dial, evaluation.policy.deviation)
            nothing = AssistedPolicy(jnp.zeros(0, int), jnp.zeros(0), *settings)
            before = evaluation_note(evaluation, self.advice if own is None else None)
            evaluation = replace(evaluation, policy=nothing)
            swapped[before] = evaluation_note(evaluation, None)
        if own is not None:
            study = {**own.study, "learner": without_numbers(own.study["learner"])}
            assert evaluation is not None
            evaluation = CertifiedEvaluation.of(evaluation, replace(_unbound(own, swapped), study=study))
        certificate = _unbound(self.certificate, swapped)
        note = f"the budget is spent, and there is no policy: {why}"
        certificate = replace(certificate, notes=(*certificate.notes, note))
        kept = {name: fact for name, fact in self.report.items() if name not in ("situations", "values")}
        return Result(None, certificate, {}, None, evaluation).reporting({**kept, "policy": None})

    def save(self, folder: str | Path, *, sign: Ed25519PrivateKey | None = None, overwrite: bool = True) -> Path:
        """Writes `certificate.json`, `policy.npz` and `report.json` to a new folder, all or nothing; with an evaluation
        also `evaluation.json` and the whole advice, `advice.npz`; and a policy on measurements as `policy.json`, for
        programs elsewhere.

        Nothing else is written: no record, no exact count that the certificate does not call public, no key. An
        existing result is replaced, unless `overwrite` is false; a folder that holds anything else is refused. With
        `sign`, a private key as `privrl.privacy.accounting.signature.read_private_key` reads it, the certificate is
        signed, and with it the policy that it names.
        """
        certificate = self.certificate if sign is None else self.certificate.signed(sign)
        with whole_folder(folder, KNOWN, overwrite=overwrite) as scratch:
            content = certificate.to_json() | ({"policy": None} if self.policy is None else {})
            (scratch / "certificate.json").write_text(json.dumps(content, indent=2, allow_nan=False))
            (scratch / "report.json").write_text(json.dumps(self.report, indent=2))
            for name, policy in (("policy.npz", self.policy), ("advice.npz", self.advice)):
                if policy is not None:
                    np.savez_compressed(scratch / name, allow_pickle=False, **arrays_of(policy))
            if isinstance(self.policy, MeasuredPolicy | AssistedMeasuredPolicy):
                (scratch / EXPORTED).write_text(json.dumps(self.policy.to_json(), allow_nan=False))
            if self.evaluation is not None:
                evaluated = json.dumps(self.evaluation.to_json(), indent=2, allow_nan=False)
                (scratch / EVALUATION).write_text(evaluated)
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path) -> "Result":
        """Reads what `save` wrote; the training data are not needed. `privrl.certify` says whether to believe it."""
        folder = Path(folder)
        policy, advice = (
            read_policy(folder / name) if (folder / name).is_file() else None for name in ("policy.npz", "advice.npz")
        )
        missing = {name for name in _FILES if not (folder / name).is_file()}
        if missing - {"policy.npz"}:
            raise ValueError(f"`{folder}` is not a saved result: {', '.join(sorted(missing))} missing.")
        certificate = read_certificate((folder / "certificate.json").read_text())
        if (folder / EXPORTED).is_file() and not is_exported(policy, (folder / EXPORTED).read_text()):
            raise ValueError(f"`{EXPORTED}` in `{folder}` is not the policy beside it. Do not use it.")
        if missing and certificate.result_sha256 != policy_sha256(None):
            raise ValueError(f"`{folder}` is not a saved result: policy.npz missing.")
        evaluation = None
        if (folder / EVALUATION).is_file():
            evaluation = read_evaluation((folder / EVALUATION).read_text())
            own = isinstance(evaluation, CertifiedEvaluation)
            bound = evaluation.certificate if isinstance(evaluation, CertifiedEvaluation) else certificate
            if evaluation_note(evaluation, None if own else advice) not in bound.notes:
                raise ValueError(f"`{EVALUATION}` or `advice.npz` in `{folder}` is not what its certificate is about.")
            if bound.result_sha256 != certificate.result_sha256:
                raise ValueError(f"`{EVALUATION}` in `{folder}` is about another policy. Do not use it.")
        try:
            report = json.loads((folder / "report.json").read_text(), object_pairs_hook=unique)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"`report.json` in `{folder}` is damaged.") from error
        result = cls(policy, certificate, report, advice, evaluation)
        object.__setattr__(result, "certificate", certificate)  # never bound anew to what lies beside it
        return result


def _unbound(certificate: Certificate, swapped: Mapping[str, str]) -> Certificate:
    """The same certificate, bound to no policy, and with some notes in place of others."""
    notes = tuple(swapped.get(note, note) for note in certificate.notes)
    return replace(certificate, result_sha256=policy_sha256(None), notes=notes)


_FILES = {"certificate.json", "policy.npz", "report.json"}
EVALUATION = "evaluation.json"
EXPORTED = "policy.json"
KNOWN = _FILES | {"advice.npz", EVALUATION, EXPORTED}
"""The files of a saved result; a folder that holds others is none."""


@dataclass(frozen=True)
class Run:
    """A simulated online run over several seeds, with exact regret.

    Attributes:
        policy: the plan after the last release, with a leading axis of seeds.
        block_ends: the public ends of the blocks.
        block_regret: expected loss of one episode in each block, per seed, exact.
        seconds: wall-clock time, compilation included.
    """

    policy: Any
    certificate: Certificate
    block_ends: Int[np.ndarray, " B"]
    block_regret: Float[np.ndarray, "seeds B"]
    seconds: float

    @cached_property
    def block_sizes(self) -> Int[np.ndarray, " B"]:
        return np.diff(self.block_ends, prepend=0)

    @property
    def regret(self) -> Float[np.ndarray, "seeds K"]:
        """The expected loss of every episode, per seed."""
        return np.repeat(self.block_regret, self.block_sizes, axis=1)

    @property
    def total_regret(self) -> Float[np.ndarray, " seeds"]:
        """The summed loss of all episodes, per seed."""
        return self.block_regret @ self.block_sizes

    def curve(self) -> dict[str, list[float]]:
        """Cumulative regret at the block ends: mean over seeds and its standard error."""
        cumulative = np.cumsum(self.block_regret * self.block_sizes, axis=1)
        seeds = cumulative.shape[0]
        spread = cumulative.std(axis=0, ddof=1) / np.sqrt(seeds) if seeds > 1 else np.full(cumulative.shape[1], np.nan)
        return {
            "episodes": self.block_ends.tolist(),
            "mean": cumulative.mean(axis=0).tolist(),
            "se": [None if np.isnan(x) else x for x in spread.tolist()],
        }
