"""A certificate can be checked from its own text, and notices when that text was changed."""

import json
import math
import re
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from privrl.contracts.release import Declared
from privrl.privacy.accounting.certificate import Certificate, read_certificate
from privrl.privacy.accounting.certificate_check import cost_problems, release_problems
from privrl.privacy.accounting.events import Event
from privrl.privacy.accounting.gdp import gdp_epsilon
from privrl.privacy.accounting.ledger import Ledger
from privrl.privacy.accounting.signature import SignatureError, read_private_key, read_public_key


def certificate(mechanism="gaussian", parameter=0.5, **changes):
    book = Ledger([Declared("sums", times=4)], [Event("sums", mechanism, parameter, 4)], "replace-one")
    for _ in range(3):
        mu = book.spend("sums")
        book.record("sums", 2.0, 2.0 / mu)
    settings = {
        "delta": 1e-5,
        "notion": "central",
        "unit": "patient",
        "bounds": {"norm": 1.0},
        "noise_source": "seed",
        "version": "0",
        **changes,
    }
    return Certificate.of(book, **settings)


def test_epsilon_is_that_of_everything_declared():
    made = certificate()
    assert made.mu == pytest.approx(1.0)
    assert made.rho == pytest.approx(0.5)
    assert made.epsilon == pytest.approx(gdp_epsilon(1.0, 1e-5), rel=1e-12)
    assert made.releases[0]["counted"] == 3 and made.releases[0]["declared"] == 4
    assert made.accountant == "exact Gaussian accounting"


def test_pure_and_mixed_accountants():
    pure = certificate("laplace", 0.25, delta=0.0)
    assert pure.epsilon == pytest.approx(1.0) and pure.accountant == "pure composition"
    mixed = certificate("laplace", 0.25)
    assert mixed.epsilon <= 1.0 and "loss distribution" in mixed.accountant


def test_round_trip_through_text():
    made = certificate()
    again = read_certificate(json.dumps(made.to_json(), allow_nan=False))
    assert again.to_json() == made.to_json()
    assert again.recomputed() == made.epsilon
    assert str(again) == str(made)


def test_no_privacy_is_said_in_words_and_in_json():
    made = certificate("none", math.inf, delta=0.0)
    assert made.notion == "none" and made.to_json()["epsilon"] == "inf"
    assert "none: epsilon is infinite" in str(made)
    assert math.isinf(read_certificate(json.dumps(made.to_json())).epsilon)


def test_words_that_a_reader_needs():
    text = str(certificate(claimed={"epsilon": 0.5, "source": "a paper"}, notes=("a note",)))
    for word in ("epsilon", "delta", "patient replaced", "curator", "sums", "3 of 4", "claimed", "a paper", "a note"):
        assert word in text


def altered(change):
    content = certificate().to_json()
    change(content, content["releases"][0], content["releases"][0]["noise"][0])
    return read_certificate(json.dumps(content))


@pytest.mark.parametrize(
    "change",
    [
        lambda c, release, noise: noise.update(scale=noise["scale"] * 0.9),
        lambda c, release, noise: noise.update(scale=noise["scale"] * 1.1),
        lambda c, release, noise: noise.update(scale=-noise["scale"]),
        lambda c, release, noise: noise.update(scale=0.0),
        lambda c, release, noise: noise.update(sensitivity=0.0),
        lambda c, release, noise: noise.update(times=5),
        lambda c, release, noise: noise.update(times=2),
        lambda c, release, noise: noise.update(times=0),
        lambda c, release, noise: release.update(noise=[]),
        lambda c, release, noise: release.update(counted=99),
        lambda c, release, noise: release.update(counted=2),
        lambda c, release, noise: release.update(counted=-1),
        lambda c, release, noise: release.update(skipped=2),
        lambda c, release, noise: c["events"][0].update(parameter=c["events"][0]["parameter"] / 100),
        lambda c, release, noise: c.update(releases=[]),
        lambda c, release, noise: c.update(releases=[release, release]),
    ],
)
def test_an_altered_ledger_is_noticed(change):
    assert release_problems(certificate()) == []
    assert release_problems(altered(change))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c, release, noise: noise.update(times=3.0), "`releases[0].noise[0].times` must be a whole number"),
        (lambda c, release, noise: noise.update(extra=1), "`releases` is not expected in this form"),
        (lambda c, release, noise: release.pop("burnt"), "`burnt` is missing in `releases[0]`."),
        (lambda c, release, noise: c.update(epsilon=[1]), "`epsilon` must be a number, not a list."),
        (lambda c, release, noise: c.update(bounds=None), "`bounds` must be an object, not null."),
        (lambda c, release, noise: c.update(stated={"purpose": 1}), "must be text, not a whole number."),
        (lambda c, release, noise: c.update(files={"report.json": 1}), "must be text, not a whole number."),
        (lambda c, release, noise: c.update(extra=1), "`extra` is not expected"),
        (lambda c, release, noise: c.pop("files"), "`files` is missing"),
        (lambda c, release, noise: c.pop("claimed"), "`claimed` is missing"),  # it is null
        (lambda c, release, noise: c.update(epsilon=10**400), "out of range"),
    ],
)
def test_types_are_checked_before_values(change, words):
    with pytest.raises(ValueError, match="^The certificate is malformed: .*" + re.escape(words)):
        altered(change)


@pytest.mark.parametrize("name", ["epsilon", "epsilon_zcdp", "rho", "mu"])
def test_an_altered_cost_is_noticed(name):
    assert cost_problems(certificate()) == []
    for factor in (0.5, 1.5, 1 + 1e-5):
        changed = altered(lambda c, release, noise, factor=factor: c.update({name: c[name] * factor}))
        assert any(f"`{name}`" in problem for problem in cost_problems(changed))


def test_no_events_prove_nothing():
    assert cost_problems(altered(lambda c, release, noise: c.update(events=[])))


def test_an_altered_epsilon_differs_from_the_recomputed_one():
    content = certificate().to_json()
    content["epsilon"] = 0.1
    changed = read_certificate(json.dumps(content))
    assert changed.recomputed() > changed.epsilon


@pytest.mark.parametrize("field", ["notion", "unit", "delta", "opened", "result_sha256", "version"])
def test_a_signature_binds_every_field(field):
    key = Ed25519PrivateKey.generate()
    made = replace(certificate(opened="2026-01-31"), result_sha256="0" * 64).signed(key)
    made.verify(key.public_key())
    read_certificate(json.dumps(made.to_json(), indent=3)).verify(key.public_key())
    changed = replace(made, **{field: 0.5 if field == "delta" else "x"})
    with pytest.raises(SignatureError, match="does not match"):
        changed.verify(key.public_key())
    with pytest.raises(SignatureError, match="does not match"):
        made.verify(Ed25519PrivateKey.generate().public_key())
    for damaged in ("", "no base64!", made.signature[:-4]):
        with pytest.raises(SignatureError):
            replace(made, signature=damaged).verify(key.public_key())


def test_a_certificate_of_no_policy_is_not_signed():
    with pytest.raises(ValueError, match="not bound to a result"):
        certificate().signed(Ed25519PrivateKey.generate())


def test_keys_come_from_pem_files_and_other_files_are_refused(tmp_path):
    key = Ed25519PrivateKey.generate()
    forms = {
        "key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        "locked": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")),
        "public": key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "curve": ec.generate_private_key(ec.SECP256R1()).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        ),
        "text": b"hello",
    }
    for name, content in forms.items():
        (tmp_path / name).write_bytes(content)
    made = replace(certificate(), result_sha256="0" * 64).signed(read_private_key(tmp_path / "key"))
    made.verify(read_public_key(tmp_path / "public"))
    for name, complaint in (("locked", "encrypted"), ("public", "private key"), ("curve", "Ed25519"), ("text", "PEM")):
        with pytest.raises(ValueError, match=complaint):
            read_private_key(tmp_path / name)
    for name in ("key", "text"):
        with pytest.raises(ValueError, match="public key"):
            read_public_key(tmp_path / name)


@pytest.mark.parametrize("text", ['{"epsilon": 1, "epsilon": 2}', '{"epsilon": NaN}', "[" * 100_000])
def test_what_two_readers_could_read_differently_is_refused(text):
    content = json.dumps(certificate().to_json())
    for damaged in (text, content[:-1] + ', "delta": 0.5}', content.replace('"counted": 3', '"counted": NaN')):
        with pytest.raises(ValueError, match="^The certificate is malformed: "):
            read_certificate(damaged)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"epsilon": 1}'])
def test_what_is_not_a_certificate(text):
    with pytest.raises(ValueError, match="^The certificate is malformed: "):
        read_certificate(text)
