"""The policies of the arms of a pilot, from the saved results that its protocol names."""

from pathlib import Path
from typing import Any

from privrl.learners.trials.protocol import Arm, Protocol
from privrl.mdp.assistance import AbstractAssisted
from privrl.studies.results.binding import policy_sha256
from privrl.studies.results.result import Result


def read_arm_policies(protocol: Protocol, folder: Path) -> dict[str, Any]:
    """Reads the policy of every arm that has one, by the name of the arm.

    Arguments:
        folder: the folder of the protocol file; saved results are relative to it.

    Raises:
        ValueError: a folder is not a saved result, or its policy is not the one that the protocol names.
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


def _read(arm: Arm, folder: Path) -> Any:
    try:
        policy = policy_of(Result.load(folder / arm.policy), arm.use)
    except ValueError as error:
        raise ValueError(f"The policy of the arm `{arm.name}` cannot be read: {error}") from error
    if policy_sha256(policy) != arm.sha256:
        raise ValueError(
            f"The policy of the arm `{arm.name}` in `{arm.policy}` is not the one that the protocol names by its hash. "
            "Restore the folder: a protocol cannot change after the first person was enrolled."
        )
    return policy
