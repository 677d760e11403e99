"""`privrl certify` and `privrl fit --sign`: exit codes, keys, and what is asked of a certificate."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from test_cli import BUDGET, RIVER, Called, call

FIT = ("fit", "env:riverswim", *RIVER, "--episodes", "50", "--seed", "5")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("keys")
    made = {}
    for name in ("ours", "theirs"):
        key = Ed25519PrivateKey.generate()
        made[name], made[f"{name}, public"] = folder / f"{name}.pem", folder / f"{name}-public.pem"
        made[name].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        made[f"{name}, public"].write_bytes(
            key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        )
    return made


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, keys: dict[str, Path]) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("results")
    arguments = {
        "private": ("--recipe", "dp-apvi", *BUDGET),
        "signed": ("--recipe", "dp-apvi", *BUDGET, "--sign", keys["ours"]),
        "plain": ("--recipe", "apvi"),
    }
    for name, options in arguments.items():
        assert call(*FIT, *options, "--out", folder / name).code == 0
    return {name: folder / name for name in arguments}


def tampered(source: Path, target: Path, change: Any) -> Path:
    shutil.copytree(source, target)
    content = json.loads((source / "certificate.json").read_text())
    change(content)
    (target / "certificate.json").write_text(json.dumps(content))
    return target


def certified(*arguments: Any) -> Called:
    """These results are simulations, whose noise protects no one; everything else about them is checked."""
    return call("certify", *arguments, "--allow-non-private")


def failed(called: Called) -> set[str]:
    """The names of the checks that failed."""
    assert called.code == 1 and "does NOT hold" in called.err
    content = json.loads(called.out)
    assert content["ok"] is False and content["authenticated"] in (True, False)
    return {name for name, check in content["checks"].items() if not check["ok"]}


def test_a_consistent_certificate_is_not_an_authenticated_one(results: dict[str, Path], keys: dict[str, Path]) -> None:
    for name in ("private", "signed"):
        content = certified(results[name], "--json").json()
        assert (content["ok"], content["authenticated"]) == (True, False)
        assert content["verdict"] == "consistent, not authenticated"
        assert content["checks"]["policy"] == {"ok": True, "reason": ""}
        assert "consistent, not authenticated" in certified(results[name]).out
    content = certified(results["signed"], "--public-key", keys["ours, public"], "--json").json()
    assert (content["authenticated"], content["verdict"]) == (True, "consistent and authenticated")


def test_a_signature_is_missing_or_of_somebody_else(
    results: dict[str, Path], keys: dict[str, Path], tmp_path: Path
) -> None:
    ours, theirs = keys["ours, public"], keys["theirs, public"]
    assert failed(certified(results["private"], "--public-key", ours, "--json")) == {"signature"}
    assert failed(certified(results["signed"], "--public-key", theirs, "--json")) == {"signature"}
    changed = tampered(results["signed"], tmp_path / "changed", lambda c: c.update(unit="hospital"))
    assert failed(certified(changed, "--public-key", ours, "--json")) == {"signature"}
    assert certified(changed).code == 0  # what a unit is called is bound by a signature only
    assert certified(results["signed"], "--public-key", keys["ours"]).code == 2


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda c: c.update(epsilon=c["epsilon"] / 2), "`epsilon`"),
        (lambda c: c.update(delta=c["delta"] / 100), "`epsilon`"),
        (lambda c: c.update(mu=c["mu"] * 0.9), "`mu`"),
        (lambda c: c.update(rho=c["rho"] * 0.9), "`rho`"),
        (lambda c: c["events"].pop(), "as often"),
        (lambda c: c["events"][0].update(parameter=c["events"][0]["parameter"] / 2), "calibrated"),
        (lambda c: c["releases"][0]["noise"][0].update(scale=c["releases"][0]["noise"][0]["scale"] / 2), "noise"),
        (lambda c: c.update(notion="local"), "`notion`"),
    ],
    ids=["epsilon", "delta", "mu", "rho", "event removed", "event cheaper", "less noise", "notion"],
)
def test_a_changed_certificate_is_found(results: dict[str, Path], tmp_path: Path, change: Any, complaint: str) -> None:
    folder = tampered(results["private"], tmp_path / "changed", change)
    called = call("certify", folder)
    assert called.code == 1 and complaint in called.err and called.out == ""
    assert failed(call("certify", folder, "--json"))


def test_another_policy_is_found(results: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(results["private"], tmp_path / "swapped")
    (tmp_path / "swapped" / "policy.npz").write_bytes((results["plain"] / "policy.npz").read_bytes())
    assert failed(certified(tmp_path / "swapped", "--json")) == {"policy.npz"}
    with np.load(results["private"] / "policy.npz") as content:
        changed = {name: np.asarray(content[name]) for name in content.files}
    changed["probabilities"] = changed["probabilities"].astype(np.float32)
    np.savez(tmp_path / "swapped" / "policy.npz", **changed)
    assert failed(certified(tmp_path / "swapped", "--json")) == {"policy.npz"}
    rehash(tmp_path / "swapped")  # the policy itself has a hash of its own
    assert failed(certified(tmp_path / "swapped", "--json")) == {"policy"}


def rehash(folder: Path) -> None:
    """Names the files of a folder in its certificate, as anyone can who does not have to sign it."""
    content = json.loads((folder / "certificate.json").read_text())
    files = (path for path in folder.iterdir() if path.name != "certificate.json")
    content["files"] = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    (folder / "certificate.json").write_text(json.dumps(content))


def test_a_name_that_occurs_twice_in_a_report_is_refused(results: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(results["signed"], tmp_path / "policy")
    file = tmp_path / "policy" / "report.json"
    file.write_text(f'{{"seed": 0, {file.read_text().strip()[1:]}')
    rehash(tmp_path / "policy")
    called = certified(tmp_path / "policy")
    assert called.code == 2 and "`report.json` is malformed" in called.err


@pytest.mark.parametrize(
    ("options", "failing"),
    [
        (("--max-epsilon", "1.9"), "max-epsilon"),
        (("--max-epsilon", "3", "--max-delta", "1e-9"), "max-delta"),
        (("--unit", "patient"), "unit"),
        (("--adjacency", "add-remove"), "adjacency"),
    ],
)
def test_what_is_asked_for(results: dict[str, Path], options: tuple[str, ...], failing: str) -> None:
    assert failed(certified(results["private"], *options, "--json")) == {failing}
    fine = ("--max-epsilon", "2", "--max-delta", "1e-4", "--unit", "user", "--adjacency", "replace-one")
    assert certified(results["private"], *fine).code == 0


def test_a_result_without_privacy_fails_unless_it_is_allowed(results: dict[str, Path], tmp_path: Path) -> None:
    assert failed(call("certify", results["plain"], "--json")) == {"private"}
    assert call("certify", results["plain"], "--allow-non-private", "--json").json()["epsilon"] == "inf"
    folder = tampered(results["plain"], tmp_path / "changed", lambda c: c.update(notion="central"))
    assert call("certify", folder, "--allow-non-private").code == 1


def test_what_is_no_certificate(results: dict[str, Path], tmp_path: Path) -> None:
    assert call("certify", tmp_path).code == 2
    shutil.copytree(results["private"], tmp_path / "damaged")
    (tmp_path / "damaged" / "certificate.json").write_text("{not json")
    called = call("certify", tmp_path / "damaged")
    assert called.code == 2 and "The certificate is malformed" in called.err
    shutil.copy(results["private"] / "certificate.json", tmp_path / "damaged")
    for content in (b"", b"PK", b"no archive"):
        (tmp_path / "damaged" / "policy.npz").write_bytes(content)
        rehash(tmp_path / "damaged")
        called = call("certify", tmp_path / "damaged")
        assert called.code == 2 and "is not an .npz file" in called.err
    np.savez(tmp_path / "damaged" / "policy.npz", weights=np.ones(3))
    rehash(tmp_path / "damaged")
    assert "not a saved policy" in call("certify", tmp_path / "damaged").err


def test_a_key_is_read_before_anything_is_spent(keys: dict[str, Path], tmp_path: Path) -> None:
    private = (*FIT, "--recipe", "dp-apvi", *BUDGET)
    (tmp_path / "text").write_text("hello")
    for key, complaint in (
        (tmp_path / "none.pem", "none.pem"),
        (tmp_path / "text", "PEM"),
        (keys["ours, public"], "PEM"),
    ):
        called = call(*private, "--out", tmp_path / "out", "--sign", key)
        assert called.code == 2 and complaint in called.err and not (tmp_path / "out").exists()
    assert "`--out`" in call(*private, "--sign", keys["ours"]).err
