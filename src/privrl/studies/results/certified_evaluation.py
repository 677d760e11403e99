"""An evaluation with a certificate of its own, as `evaluate` makes it, and how a saved one is read."""

import math
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privrl.contracts.untrusted import read_json
from privrl.evaluation.decision import Bound, Reason, describe_bound
from privrl.evaluation.estimates import Evaluation
from privrl.mdp.assistance import to_json_number
from privrl.privacy.accounting.certificate import Certificate
from privrl.privacy.accounting.composition import epsilon_of
from privrl.studies.results.binding import EVALUATION, EVALUATION_CERTIFICATE, KNOWN, SavedFiles, hash_files, json_bytes
from privrl.writing import check_folder, whole_folder


@dataclass(frozen=True)
class ReleaseEvidence:
    """What an evaluation in a folder of its own supports. It holds no policy, so it cannot say what happens to
    decisions.

    Attributes:
        reasons: why the evidence does not support a release; empty if it does.
        bound: the bound that decides, if there is one.
        max_ratio, max_weight: the limits with which the advice was compared.
    """

    reasons: tuple[Reason, ...]
    bound: Bound | None
    max_ratio: float
    max_weight: float

    @property
    def statement(self) -> str:
        """The sentence with which outputs about such an evaluation begin."""
        return (
            "An evaluation alone: the policy is in another folder. `privrl certify POLICY` says what was decided about "
            "it."
        )

    @property
    def support(self) -> str:
        """What the evidence supports, in one sentence."""
        if self.reasons:
            return "The evidence does not support a release of the advice that was compared."
        if math.isinf(self.max_ratio) and math.isinf(self.max_weight):
            return "The evidence supports all advice that has enough support and is estimated to be better."
        return (
            f"The evidence supports the advice up to a factor of {self.max_ratio:g} and a weight of "
            f"{self.max_weight:g} per episode."
        )

    @property
    def words(self) -> str:
        """The statement, and what was found."""
        return f"{self.statement} {self.findings}"

    @property
    def findings(self) -> str:
        """What is supported, the reasons against it and the bound."""
        said = (self.support, *(reason.sentence for reason in self.reasons), self.bound_sentence)
        return " ".join(sentence for sentence in said if sentence)

    @property
    def bound_sentence(self) -> str:
        """A sentence about the bound; empty without one."""
        return describe_bound(self.bound, self.reasons)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON for the output of commands."""
        return {
            "statement": self.statement,
            "supports_release": not self.reasons,
            "reasons": [reason.value for reason in self.reasons],
            "bound": None if self.bound is None else asdict(self.bound),
            "max_ratio": to_json_number(self.max_ratio),
            "max_weight": to_json_number(self.max_weight),
        }


@dataclass(frozen=True)
class CertifiedEvaluation(Evaluation):
    """An evaluation, and what its own releases can reveal.

    The certificate is bound to the policy that was evaluated (`result_sha256`), and covers the evaluation alone: what
    the policy itself reveals is in the policy's own certificate.
    """

    certificate: Certificate = field(kw_only=True)

    @classmethod
    def of(cls, evaluation: Evaluation, certificate: Certificate) -> "CertifiedEvaluation":
        """The evaluation with this certificate, which names the hash of its file."""
        kept = {f.name: getattr(evaluation, f.name) for f in fields(Evaluation)}
        files = hash_files({EVALUATION: json_bytes(evaluation.to_json())})
        return cls(**kept, certificate=replace(certificate, files=files))

    @property
    def evidence(self) -> ReleaseEvidence:
        """What it supports if it lies in a folder of its own."""
        return ReleaseEvidence(self.reasons, self.bound, self.policy.max_ratio, self.policy.max_weight)

    def signed(self, key: Ed25519PrivateKey) -> "CertifiedEvaluation":
        """The same evaluation with a signed certificate."""
        return replace(self, certificate=self.certificate.signed(key))

    def contents(self) -> dict[str, bytes]:
        """The two files that it is saved as."""
        return {
            EVALUATION: json_bytes(self.to_json()),
            EVALUATION_CERTIFICATE: json_bytes(self.certificate.to_json()),
        }

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Adds `evaluation.json` and its certificate to a new folder, or to the saved result with its policy.

        The folder is written anew and moved into place, so it holds both files or neither. `overwrite` says whether an
        older evaluation may be replaced.
        """
        folder = Path(folder)
        signing = bool(self.certificate.signature)
        check_evaluation_folder(folder, self.certificate.result_sha256, signing=signing, overwrite=overwrite)
        kept = {} if not folder.exists() else SavedFiles.read(folder).contents
        with whole_folder(folder, KNOWN) as scratch:
            for name, content in {**kept, **self.contents()}.items():
                (scratch / name).write_bytes(content)
        return folder

    def apart_from(self, policy: Certificate) -> str:
        """Why this evaluation and the policy with that certificate have no epsilon together; empty where they have."""
        several = ("records_per_unit", "block_distance", "messages_per_user") if policy.relation != "record" else ()
        for name in ("adjacency", "unit", "relation", *several):
            theirs, own = getattr(policy, name), getattr(self.certificate, name)
            if theirs != own:
                return (
                    f"the certificates of policy and evaluation do not compose: `{name}` is {theirs!r} for the policy "
                    f"and {own!r} for the evaluation. Use the same for both."
                )
        return ""

    def together_with(self, policy: Certificate) -> tuple[float, float]:
        """Epsilon and delta for a person in both tables: this evaluation's, and that of the policy with this
        certificate.

        **Formal guarantee.** Both certificates are about the same neighbours, or there is a `ValueError`: a sensitivity
        holds for one relation alone. A group of the policy's people may be any of the evaluation's, so that all events
        of the evaluation count for each.
        """
        if why := self.apart_from(policy):
            raise ValueError(f"{why[:1].upper()}{why[1:]}")
        delta = max(self.certificate.delta, policy.delta)
        own = (replace(event, group=None) for event in self.certificate.events)
        return epsilon_of((*policy.events, *own), delta, adjacency=policy.adjacency), delta


def check_evaluation_folder(folder: Path, policy_sha256: str, *, signing: bool, overwrite: bool) -> None:
    """Refuses a folder for an evaluation of that policy, by a trial, before any budget is spent.

    It is a new or empty folder, one that holds an evaluation alone, or the saved result with that policy. If the result
    is signed, the evaluation must be signed too, and it never replaces one that the result's certificate names.
    """
    check_folder(folder, KNOWN, overwrite=True)
    if not folder.exists() or not any(folder.iterdir()):
        return
    saved = SavedFiles.read(folder)
    held = {EVALUATION, EVALUATION_CERTIFICATE} & saved.contents.keys()
    if held and not saved.added_later:
        raise ValueError(
            f"The certificate in `{folder}` names its `{EVALUATION}`, which is therefore never replaced. Choose "
            "another folder."
        )
    if held and not overwrite:
        raise ValueError(
            f"`{folder}` holds an `{EVALUATION}` already. Choose another folder, or add `--overwrite` to replace it."
        )
    if saved.certificate is None:
        if saved.contents.keys() - held:
            raise ValueError(f"`{folder}` holds files without a certificate. Choose another folder.")
        return
    saved.check()
    if saved.certificate.result_sha256 != policy_sha256:
        raise ValueError(f"`{folder}` holds another policy than the one to evaluate. Choose another folder.")
    if saved.certificate.signature and not signing:
        raise ValueError(f"The result in `{folder}` is signed. Sign the evaluation with `--sign`, or save it apart.")


def read_evaluation(saved: SavedFiles) -> Evaluation | None:
    """The evaluation in a folder, with its own certificate if it has one; `None` if there is no evaluation."""
    if EVALUATION not in saved.contents:
        return None
    evaluation = Evaluation.from_json(read_json(saved.contents[EVALUATION], "The evaluation"))
    own = saved.evaluation_certificate
    return evaluation if own is None else CertifiedEvaluation(**vars(evaluation), certificate=own)


def load_evaluation(folder: str | Path) -> CertifiedEvaluation:
    """An evaluation that lies in a folder without its policy, as `privrl evaluate --out` writes it."""
    saved = SavedFiles.read(folder)
    saved.check()
    evaluation = read_evaluation(saved)
    if not isinstance(evaluation, CertifiedEvaluation):
        raise ValueError(f"`{folder}` holds no `{EVALUATION}` with a certificate of its own.")
    return evaluation
