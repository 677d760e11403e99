"""`privrl certify`: whether a saved certificate adds up, number by number."""

import math
from pathlib import Path
from typing import Annotated, Any

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from privrl.cli.options.evaluation_options import decision_json, show_decision
from privrl.cli.options.trusted_modules import TrustOption, trust_modules
from privrl.cli.output import JsonOption, complain, emit, say
from privrl.contracts.statistic import Adjacency
from privrl.evaluation.decision import Decision
from privrl.privacy.accounting.certificate import Certificate
from privrl.privacy.accounting.signature import read_public_key
from privrl.studies.offline.evaluating import policy_arrays
from privrl.studies.results.binding import CERTIFICATE, SavedFiles
from privrl.studies.results.certification import Verdict, certify_folder, certify_pilot
from privrl.studies.results.certified_evaluation import CertifiedEvaluation, read_evaluation
from privrl.studies.results.pilot_record import PILOT, PilotRecord
from privrl.studies.results.result import Result


def certify(
    folder: Annotated[
        Path,
        typer.Argument(help="A folder of `privrl fit --out`, `privrl evaluate --out` or `Result.save`, or of a pilot."),
    ],
    policy: Annotated[
        Path | None,
        typer.Option("--policy", help="The policy that an evaluation on its own is about: its folder or .npz file."),
    ] = None,
    public_key: Annotated[
        Path | None, typer.Option("--public-key", help="PEM file: the certificate must be signed by its owner.")
    ] = None,
    max_epsilon: Annotated[float | None, typer.Option("--max-epsilon", help="The largest accepted epsilon.")] = None,
    max_delta: Annotated[float | None, typer.Option("--max-delta", help="The largest accepted delta.")] = None,
    unit: Annotated[str | None, typer.Option("--unit", help="The only accepted privacy unit.")] = None,
    adjacency: Annotated[
        Adjacency | None, typer.Option("--adjacency", help="The only accepted neighbouring relation.")
    ] = None,
    allow_non_private: Annotated[
        bool, typer.Option("--allow-non-private", help="Accept a result that protects no one.")
    ] = False,
    trust: TrustOption = None,
    json: JsonOption = False,
) -> None:
    """Derive a saved certificate again from its settings and compare it, number by number and with the policy.

    Exit code 1 if anything differs, or is not what was asked for. Without a public key a certificate is at most
    "consistent, not authenticated": anybody can write a consistent one.
    """
    trust_modules(trust)
    key = None if public_key is None else read_public_key(public_key)
    asked: dict[str, Any] = {
        "max_epsilon": max_epsilon,
        "max_delta": max_delta,
        "unit": unit,
        "adjacency": adjacency,
        "allow_non_private": allow_non_private,
    }
    if (folder / PILOT).is_file():
        _certify_pilot(folder, policy, key, asked, json)
        return
    saved = SavedFiles.read(folder)
    if saved.certificate is None:
        if saved.evaluation_certificate is not None:
            _certify_evaluation(saved, policy, key, asked, json)
            return
        inner = f" Did you mean `{folder / 'policy'}`?" if (folder / "policy" / CERTIFICATE).is_file() else ""
        raise ValueError(f"There is no `{CERTIFICATE}` in `{folder}`.{inner}")
    if policy is not None:
        raise ValueError(f"`--policy` is for an evaluation on its own; `{folder}` holds its own policy. Leave it out.")
    verdict, certificate = certify_folder(saved, public_key=key, **asked), saved.certificate
    if not verdict.files_ok:
        _show_verdict(folder, certificate, verdict, [], {}, json)
    result = Result.from_files(saved)
    evaluation = result.evaluation
    said = ["The budget is spent, and there is no policy."] if result.policy is None else []
    said.append(
        f"The certificate is {verdict.words}: epsilon = {certificate.epsilon:.6g} at delta = {certificate.delta:g}."
    )
    more: dict[str, Any] = {}
    if isinstance(evaluation, CertifiedEvaluation):
        own, apart = evaluation.certificate, evaluation.apart_from(certificate)
        together = None if apart else evaluation.together_with(certificate)[0]
        more["epsilon_with_evaluation"] = "inf" if together == math.inf else together
        said.append(
            f"The evaluation has its own certificate, which is {verdict.words}: epsilon = {own.epsilon:.6g} "
            f"at delta = {own.delta:g}. For a person in both tables "
            f"{f'no joint epsilon is known: {apart}' if together is None else f'it is {together:.6g} together.'}"
        )
    warned = () if evaluation is None else evaluation.warnings
    _show_verdict(folder, certificate, verdict, [*warned, *said], more, json, result.decision)


def _certify_pilot(
    folder: Path, policy: Path | None, key: Ed25519PublicKey | None, asked: dict[str, Any], json: bool
) -> None:
    """Certifies the record of a pilot."""
    if policy is not None:
        raise ValueError(f"`--policy` is for an evaluation on its own; `{folder}` is the record of a pilot.")
    certificate, verdict = certify_pilot(folder, public_key=key, **asked)
    said, more = [], {}
    if verdict.files_ok:
        record = PilotRecord.load(folder)
        more = {"protocol_sha256": record.protocol.sha256, "result": record.sentence}
        said = [
            f"The certificate is {verdict.words}: epsilon = {certificate.epsilon:.6g} at delta = "
            f"{certificate.delta:g}, for the protocol with SHA-256 {record.protocol.sha256}.",
            record.sentence,
        ]
    _show_verdict(folder, certificate, verdict, said, more, json)


def _certify_evaluation(
    saved: SavedFiles, policy: Path | None, key: Ed25519PublicKey | None, asked: dict[str, Any], json: bool
) -> None:
    """Certifies an evaluation that lies in a folder of its own; without its policy all but the policy is checked."""
    named = None
    if policy is not None:
        named = policy_arrays(Result.load(policy) if policy.is_dir() else policy)
    verdict = certify_folder(saved, named, public_key=key, **asked)
    certificate = saved.evaluation_certificate
    assert certificate is not None
    compared = "compared" if named is not None else "not compared: give it with `--policy`"
    said = [
        f"The certificate of this evaluation is {verdict.words}: epsilon = {certificate.epsilon:.6g} at delta = "
        f"{certificate.delta:g}. It covers the evaluation alone. The policy with SHA-256 "
        f"{certificate.result_sha256} was {compared}."
    ]
    more: dict[str, Any] = {"policy": compared}
    first = None
    if verdict.files_ok and isinstance(evaluation := read_evaluation(saved), CertifiedEvaluation):
        said, first = [evaluation.line, *said], evaluation.evidence.words
        more["evidence"] = evaluation.evidence.to_json()
    _show_verdict(saved.folder, certificate, verdict, said, more, json, first=first)


def _show_verdict(
    folder: Path,
    certificate: Certificate,
    verdict: Verdict,
    said: list[str],
    more: dict[str, Any],
    json: bool,
    decision: Decision | None = None,
    *,
    first: str | None = None,
) -> None:
    """What was decided (or another `first` line), the certificate and what is said about it, or why it does not hold
    and exit code 1; `more` is for JSON."""
    if json:
        content = certificate.to_json()
        stated = {name: content[name] for name in ("epsilon", "delta", "unit", "adjacency")}
        emit(
            {
                **decision_json(decision),
                "folder": str(folder),
                **stated,
                **more,
                **verdict.to_json(),
                "certificate": content,
            }
        )
    elif verdict.ok:
        show_decision(decision)
        if first is not None:
            say(first)
        for line in (str(certificate), *said):
            say(line)
    if not verdict.ok:
        complain("The certificate does NOT hold:", *(f"- {problem}" for problem in verdict.problems))
        raise typer.Exit(1)
