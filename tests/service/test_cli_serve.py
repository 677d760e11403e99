"""`privrl serve`: init, check and key; what run refuses; and a process that is killed and comes back."""

import os
import re
import socket
import sys
from datetime import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID
from service.serving import CENTRAL, LOCAL
from test_cli import Called
from test_cli import call as called

from privrl.service.access import KeyFile
from privrl.service.listening import Address, Listeners


def call(*arguments: str) -> tuple[int, str, str]:
    found: Called = called(*arguments)
    return found.code, found.out, found.err


@pytest.fixture
def river(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "river.toml"
    path.write_text(CENTRAL.replace("STORE", "river.db"))
    return path


def test_init_declares_and_prints_keys_once(river: Path) -> None:
    code, out, _ = call("serve", "init", "river.toml")
    assert code == 0
    keys = re.findall(r"(app|operator) +(prk_[\w-]{43})", out)
    assert [role for role, _ in keys] == ["app", "operator"]
    for name in ("river.db", "river.keys", "river.audit.log"):
        assert river.with_name(name).stat().st_mode & 0o777 == 0o600
    kept = river.with_name("river.keys").read_text()
    assert not any(key in kept for _, key in keys)
    code, out, _ = call("serve", "init", "river.toml")
    assert code == 0 and "prk_" not in out
    assert river.with_name("river.keys").read_text() == kept


def test_check_says_what_run_would_do_and_changes_nothing(river: Path) -> None:
    code, out, _ = call("serve", "check", "river.toml")
    assert code == 0 and "was not begun yet" in out and sorted(os.listdir()) == ["river.toml"]
    call("serve", "init", "river.toml")
    kept = {name: Path(name).read_bytes() for name in ("river.db", "river.keys", "river.audit.log")}
    code, out, _ = call("serve", "check", "river.toml")
    assert code == 0 and "the store is intact" in out and "continue from here" in out
    assert {name: Path(name).read_bytes() for name in kept} == kept
    for old, new, entry in (
        ("users = 40", "users = 41", "`users`"),
        ("epsilon = 1.0", "epsilon = 2.0", "`epsilon`"),
        ("patience = 1000.0", "patience = 5.0", "`patience`"),
        ("users = 40", "users = 40\nmax_episodes_per_unit = 2", "`max_episodes_per_unit`"),
        ("horizon = 4", "horizon = 5", "`[world]`"),
    ):
        river.write_text(river.read_text().replace(old, new))
        for command in ("check", "init"):
            code, _, err = call("serve", command, "river.toml")
            assert code == 2 and entry in err and "cannot be changed" in err
        river.write_text(river.read_text().replace(new, old))
    assert {name: Path(name).read_bytes() for name in kept} == kept


def test_keys_are_added_listed_and_revoked(river: Path) -> None:
    code, out, _ = call("serve", "key", "add", "river.toml", "--role", "app", "--name", "web shop")
    assert code == 0 and re.fullmatch(r"prk_[\w-]{43}\n", out)
    assert "web shop" in call("serve", "key", "list", "river.toml")[1]
    assert call("serve", "key", "add", "river.toml", "--role", "app", "--name", "web shop")[0] == 2
    assert call("serve", "key", "add", "river.toml", "--role", "boss", "--name", "x")[0] == 2
    assert call("serve", "key", "revoke", "river.toml", "--name", "web shop")[0] == 0
    assert "web shop" not in call("serve", "key", "list", "river.toml")[1]
    assert call("serve", "key", "revoke", "river.toml", "--name", "web shop")[0] == 2


def test_keys_that_nobody_could_use_are_said(river: Path) -> None:
    river.with_name("phone.toml").write_text(LOCAL.replace("STORE", "phone.db"))
    for name, role in (("phone", "app"), ("river", "device")):
        code, _, err = call("serve", "key", "add", f"{name}.toml", "--role", role, "--name", "x")
        assert code == 2 and "whose keys have the role" in err and not river.with_name(f"{name}.keys").exists()
    call("serve", "init", "river.toml")
    assert "no key" not in call("serve", "check", "river.toml")[2]
    river.with_name("river.keys").unlink()
    code, _, err = call("serve", "check", "river.toml")
    assert code == 0 and "There is no key with the role app" in err
    river.with_name("river.keys").write_text("{")
    code, _, err = call("serve", "check", "river.toml")
    assert code == 2 and "is not a key file" in err


def test_one_key_for_several_studies(river: Path) -> None:
    river.with_name("phone.toml").write_text(LOCAL.replace("STORE", "phone.db"))
    both = ("serve", "key", "add", "river.toml", "phone.toml", "--role", "operator", "--name", "on call")
    assert call(*both)[0] == 0
    kept = [KeyFile(river.with_name(f"{name}.keys")).read()["on call"] for name in ("river", "phone")]
    assert kept[0] == kept[1] and kept[0].role == "operator"
    call("serve", "key", "revoke", "river.toml", "--name", "on call")
    assert call(*both)[0] == 2 and not KeyFile(river.with_name("river.keys")).read()


@pytest.mark.parametrize("options", [["--listen", "0.0.0.0:1"], ["--operator", "10.0.0.1:1"], ["--listen", "[::]:1"]])
def test_addresses_that_others_reach_need_tls(river: Path, options: list[str]) -> None:
    code, _, err = call("serve", "run", "river.toml", *options)
    assert code == 2 and "--tls-cert" in err and options[0] in err


def test_tls_or_a_proxy_opens_them() -> None:
    everywhere, here = Address.from_text("0.0.0.0:443"), Address.from_text("[::1]:8081")
    Listeners(everywhere, here, behind_proxy=True).check()
    with pytest.raises(ValueError, match="both"):
        Listeners(here, here, certificate=Path("a")).check()
    for text in ("8080", ":8080", "localhost", "localhost:http", "localhost:70000"):
        with pytest.raises(ValueError, match="HOST:PORT"):
            Address.from_text(text)


def pem_files(folder: Path, password: bytes = b"") -> tuple[Path, Path]:
    """A certificate of this machine for itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(datetime(2020, 1, 1)).not_valid_after(datetime(2120, 1, 1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    hidden = BestAvailableEncryption(password) if password else NoEncryption()
    paths = folder / f"cert{len(password)}.pem", folder / f"key{len(password)}.pem"
    paths[0].write_bytes(made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    paths[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden))
    return paths


def test_a_certificate_that_cannot_be_used_is_refused_at_once(tmp_path: Path) -> None:
    everywhere, here = Address.from_text("0.0.0.0:443"), Address.from_text("[::1]:8081")
    certificate, key = pem_files(tmp_path)
    Listeners(everywhere, here, certificate=certificate, private_key=key).check()
    with pytest.raises(ValueError, match=r"`--tls-key` is .*No such file"):
        Listeners(everywhere, here, certificate=certificate, private_key=tmp_path / "none").check()
    _, hidden = pem_files(tmp_path, b"password")
    for wrong in (certificate, hidden):  # no key; one that somebody would have to unlock
        with pytest.raises(ValueError, match="cannot be used for TLS"):
            Listeners(everywhere, here, certificate=certificate, private_key=wrong).check()


def test_a_port_in_use_is_said_and_may_be_tried_again(river: Path) -> None:
    call("serve", "init", "river.toml")
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        for options in (
            ["--listen", taken, "--operator", "127.0.0.1:0"],
            ["--listen", "127.0.0.1:0", "--operator", taken],
        ):
            code, out, err = call("serve", "run", "river.toml", *options)
            assert code == 1 and taken in err and "another port" in err and not out
        code, out, err = call("serve", "demo", "--port", taken.rsplit(":")[1])
        assert code == 1 and "another port" in err and not out
    code, _, err = call("serve", "run", "river.toml", "--listen", "no-such-name.invalid:1", "--behind-proxy")
    assert code == 2 and "knows no address" in err


def test_a_public_address_without_a_proxy_is_warned_about(tmp_path: Path) -> None:
    """TLS keeps others from reading; only a proxy limits slow clients."""
    everywhere, here = Address.from_text("0.0.0.0:443"), Address.from_text("127.0.0.1:8081")
    files = pem_files(tmp_path)
    assert "--behind-proxy" in Listeners(everywhere, here, (), *files).warning
    assert Listeners(everywhere, here, behind_proxy=True).warning == ""
    assert Listeners(here, here).warning == ""


def test_the_two_addresses_have_different_ports(river: Path) -> None:
    call("serve", "init", "river.toml")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["--listen", f"127.0.0.1:{port}", "--operator", f"127.0.0.2:{port}"]
    code, _, err = call("serve", "run", "river.toml", *options)
    assert code == 2 and "different ports" in err


def test_without_the_extra_it_says_what_to_install(river: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, _, err = call("serve", "init", "river.toml")
    assert code == 2 and 'pip install "privrl[serve]"' in err


def test_run_refuses_a_study_that_was_not_begun_and_two_of_one_name(river: Path) -> None:
    code, _, err = call("serve", "run", "river.toml", "--listen", "127.0.0.1:0", "--operator", "127.0.0.1:0")
    assert code == 2 and "privrl serve init" in err
    code, _, err = call("serve", "run", "river.toml", "river.toml")
    assert code == 2 and "same name" in err
