"""What binds a certificate to what it is about: hashes of a policy, of an evaluation and of a report."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from privrl.evaluation.estimates import Evaluation
from privrl.mdp.assisted_measured import AssistedMeasuredPolicy
from privrl.mdp.measured_policy import MeasuredPolicy

REPORT_NOTE = "the report beside it has SHA-256 "
"""How the note begins that binds a report."""


def policy_sha256(policy: Any) -> str:
    """SHA-256 of a policy: its arrays by name, with dtype and shape, little endian and in C order.

    `policy` is a dataclass of arrays, a mapping of names to arrays, or `None`: no policy, which has no array.
    """
    digest = hashlib.sha256()
    for name, array in sorted(arrays_of(policy).items()):
        data = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
        head = json.dumps([name, array.dtype.name, list(array.shape), len(data)]).encode()
        digest.update(len(head).to_bytes(8, "little") + head + data)
    return digest.hexdigest()


def arrays_of(policy: Any) -> dict[str, np.ndarray]:
    """The arrays of a policy by name, as they are saved."""
    if policy is None:
        return {}
    if isinstance(policy, MeasuredPolicy | AssistedMeasuredPolicy):
        return policy.arrays()
    named = policy if isinstance(policy, Mapping) else {f.name: getattr(policy, f.name) for f in fields(policy)}
    return {name: np.asarray(array) for name, array in named.items()}


def evaluation_note(evaluation: Evaluation, advice: Any) -> str:
    """What binds an evaluation, and the whole advice beside it, to the certificate that has this note.

    Not hashed: the words of `held_back`, which follow from the numbers, and fields that the first version did not
    write where they are what `Evaluation.from_json` takes instead, so that its notes hold.
    """
    content = evaluation.to_json()
    implied: dict[str, Any] = dict.fromkeys(("trend", "continuity", "arrival", "assisted_gain"))
    implied["public"] = evaluation.gain is not None
    left_out = {"certificate", "held_back", *(name for name, value in implied.items() if content[name] == value)}
    content = {name: value for name, value in content.items() if name not in left_out}
    text = json.dumps([content, policy_sha256(advice)], sort_keys=True, allow_nan=False)
    return f"the evaluation and the advice beside it have SHA-256 {hashlib.sha256(text.encode()).hexdigest()}"


def report_note(report: Mapping[str, Any]) -> str:
    """What binds a report to the certificate that has this note: its content as JSON, in whatever order it stands."""
    text = json.dumps(json.loads(json.dumps(report)), sort_keys=True)
    return f"{REPORT_NOTE}{hashlib.sha256(text.encode()).hexdigest()}"
