"""The policies of the arms of a pilot, from the saved results that its protocol names."""

import hashlib
from pathlib import Path
from typing import Any, TypeGuard

from privrl.contracts.untrusted import read_bytes
from privrl.learners.trials.protocol import Arm, Protocol
from privrl.mdp.assistance import AbstractAssisted
from privrl.mdp.types import TabularPolicy
from privrl.studies.results.binding import json_bytes, policy_sha256
from privrl.studies.results.result import Result
from privrl.studies.results.saved_policies import export_policy, is_exported


def read_arm_policies(protocol: Protocol, folder: Path) -> dict[str, Any]:
    """Reads the policy of every arm that has one, by the name of the arm.

    Arguments:
        folder: the folder of the protocol file; saved results are relative to it.

    Raises:
        ValueError: a folder is not a saved result, or its policy, or the file for apps, is not the one that the
            protocol names.
    """
    return {arm.name: _read(arm, folder) for arm in protocol.policies if arm.policy}


def policy_of(result: Result, use: str) -> Any:
    """The policy of a saved result that an arm uses: the whole advice, or the assisted policy.

    Raises:
        ValueError: the result does not have it.
    """
    if use == "assisted":
        if not isinstance(result.policy, AbstractAssisted):
            raise ValueError("The result has no assisted policy. Fit with `--evaluate`, or use the whole advice.")
        return result.policy
    whole = result.policy if result.advice is None else result.advice
    if whole is None:
        raise ValueError("The result has no policy.")
    return whole


def is_served_by_state(policy: object) -> TypeGuard[TabularPolicy]:
    """Whether a service can answer which action the policy takes in a numbered state at a step."""
    return isinstance(policy, TabularPolicy) and not policy.rules.need_previous


def arm_file(result: Result, use: str) -> bytes | None:
    """The policy of an arm for `ExportedPolicy` and its reader in JavaScript, without the limits of another one.

    `policy.json` of a saved result is its assisted policy, which names no choice if it was withheld. The result is
    `None` if apps need no file, because the service answers them, or if the policy has no JSON.
    """
    policy = policy_of(result, use)
    exported = None if is_served_by_state(policy) else export_policy(policy, result.report)
    return None if exported is None else json_bytes(exported, indent=None)


def how_to_advise(arm: Arm) -> str:
    """What an app does if the service cannot answer what the policy of this arm advises."""
    if arm.file:
        return f"Compute its advice from `{arm.file}`, which the protocol names."
    return "Compute its advice from the saved policy."


def _read(arm: Arm, folder: Path) -> Any:
    try:
        result = Result.load(folder / arm.policy)
        policy = policy_of(result, arm.use)
    except ValueError as error:
        raise ValueError(f"The policy of the arm `{arm.name}` cannot be read: {error}") from error
    if policy_sha256(policy) != arm.sha256:
        raise ValueError(
            f"The policy of the arm `{arm.name}` in `{arm.policy}` is not the one that the protocol names by its hash. "
            "Restore the folder: a protocol cannot change after the first person was enrolled."
        )
    if arm.file:
        _check_file(arm, policy, result, folder / arm.file)
    return policy


def _check_file(arm: Arm, policy: Any, result: Result, path: Path) -> None:
    """Refuses a file for apps that is not the one of the protocol, or holds another policy than the arm."""
    if not path.is_file():
        raise ValueError(
            f"`{path}`, from which apps compute the advice of the arm `{arm.name}`, is missing. Restore it next to the "
            "protocol."
        )
    content = read_bytes(path)
    if hashlib.sha256(content).hexdigest() != arm.file_sha256 or not is_exported(policy, result.report, content):
        raise ValueError(
            f"`{path}`, from which apps compute the advice of the arm `{arm.name}`, is not the file that the protocol "
            "names by its hash. Restore it: a protocol cannot change after the first person was enrolled."
        )
