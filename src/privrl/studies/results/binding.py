"""What binds a certificate to what it is about: the hash of a policy, and the hashes of the files of a folder."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from privrl.contracts.policy import AbstractPolicy
from privrl.contracts.untrusted import read_bytes
from privrl.privacy.accounting.certificate import Certificate, read_certificate

CERTIFICATE = "certificate.json"
POLICY = "policy.npz"
REPORT = "report.json"
ADVICE = "advice.npz"
EXPORTED = "policy.json"
EVALUATION = "evaluation.json"
EVALUATION_CERTIFICATE = "evaluation-certificate.json"
KNOWN = frozenset({CERTIFICATE, POLICY, REPORT, ADVICE, EXPORTED, EVALUATION, EVALUATION_CERTIFICATE})
"""The files of a saved result; a folder that holds others is not one."""
_EVALUATED = {EVALUATION, EVALUATION_CERTIFICATE}


def policy_sha256(policy: object) -> str:
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
    if isinstance(policy, AbstractPolicy):
        return policy.arrays()
    named = policy if isinstance(policy, Mapping) else {f.name: getattr(policy, f.name) for f in fields(policy)}
    return {name: np.asarray(array) for name, array in named.items()}


def hash_files(contents: Mapping[str, bytes]) -> dict[str, str]:
    """The SHA-256 of every file, by name: what `Certificate.files` holds."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in sorted(contents.items())}


def json_bytes(content: object, indent: int | None = 2) -> bytes:
    """A JSON file."""
    return json.dumps(content, indent=indent, allow_nan=False).encode()


@dataclass(frozen=True)
class SavedFiles:
    """The files of a folder, each read once, and the certificates that name them.

    `certificate.json` names the hash of every file that was saved with it. An evaluation that was added later comes
    with a certificate of its own, `evaluation-certificate.json`, which names the hash of `evaluation.json`.

    **Formal guarantee.** If `problems` is empty, every file is one of the two certificates, or has the hash that one of
    them names, and no file is missing. If a certificate is signed besides, its owner signed these bytes.
    """

    folder: Path
    contents: Mapping[str, bytes]
    certificate: Certificate | None
    evaluation_certificate: Certificate | None

    @classmethod
    def read(cls, folder: str | Path) -> "SavedFiles":
        """Reads a folder; a certificate that is malformed is a `ValueError`, and other files are not looked into."""
        folder = Path(folder)
        if not folder.is_dir():
            raise ValueError(f"There is no folder `{folder}`. Give one that `privrl fit --out` or `Result.save` wrote.")
        names = sorted(path.name for path in folder.iterdir())
        contents = {name: read_bytes(folder / name) if name in KNOWN else b"" for name in names}
        certificate, own = (
            read_certificate(contents[name]) if name in contents else None
            for name in (CERTIFICATE, EVALUATION_CERTIFICATE)
        )
        return cls(folder, contents, certificate, own)

    @property
    def added_later(self) -> bool:
        """Whether the evaluation came after the certificate of the policy, which does not name it."""
        named = set() if self.certificate is None else set(self.certificate.files)
        return bool(_EVALUATED & self.contents.keys()) and not _EVALUATED & named

    def problems(self) -> dict[str, str]:
        """What is wrong with each file, by its name; an empty text if nothing is."""
        found = hash_files(self.contents)
        named = {} if self.certificate is None else dict(self.certificate.files)
        own = {} if self.evaluation_certificate is None else dict(self.evaluation_certificate.files)
        if self.added_later:
            named[EVALUATION_CERTIFICATE] = found.get(EVALUATION_CERTIFICATE, "")
            named[EVALUATION] = own.get(EVALUATION, "")
        names = sorted({*found, *named} - {CERTIFICATE})
        wrong = {name: _problem(name, found.get(name), named.get(name)) for name in names}
        if self.evaluation_certificate is not None and own != {EVALUATION: found.get(EVALUATION)}:
            wrong[EVALUATION_CERTIFICATE] = f"`{EVALUATION_CERTIFICATE}` is not about this `{EVALUATION}` alone."
        return wrong

    def check(self) -> None:
        """Raises `ValueError` if a file is missing, was changed or was added."""
        if wrong := [problem for problem in self.problems().values() if problem]:
            raise ValueError(f"Do not use `{self.folder}`. {' '.join(wrong)}")


def _problem(name: str, found: str | None, named: str | None) -> str:
    if found is None:
        return f"`{name}` is missing."
    if named is None or name not in KNOWN:
        return f"`{name}` is not named by the certificate. Remove the file, or get the folder again."
    return "" if found == named else f"`{name}` is not the file that the certificate names."
