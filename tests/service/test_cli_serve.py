"""`privrl serve`: init, check and key; what run refuses; and a process that is killed and comes back."""

import json
import os
import re
import socket
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest
from clocks import Clock
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
from service.serving import CENTRAL, LOCAL, serving
from test_cli import Called
from test_cli import call as called

from privrl.cli import serve as cli_serve
from privrl.service.access import KeyedStudy
from privrl.service.listening import Address, Listeners
from privrl.service.study_file import read_study_file


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
    for name in ("river.db", "river.audit.log"):
        assert river.with_name(name).stat().st_mode & 0o777 == 0o600
    files = [path.read_bytes() for path in river.parent.iterdir()]
    assert not any(key.encode() in content for _, key in keys for content in files)
    kept = KeyedStudy.read(river).keys.read()
    code, out, _ = call("serve", "init", "river.toml")
    assert code == 0 and "prk_" not in out
    assert KeyedStudy.read(river).keys.read() == kept


def test_auto_says_what_it_has_chosen(river: Path) -> None:
    river.write_text(river.read_text().replace('"dp-ucbvi"', '"auto"'))
    for command in ("check", "init"):
        code, out, _ = call("serve", command, "river.toml")
        assert code == 0 and "`auto` has chosen `OBI`." in out
    river.write_text(river.read_text().replace('"auto"', '"dp-obi"'))  # the same study
    code, out, _ = call("serve", "check", "river.toml")
    assert code == 0 and "has chosen" not in out


def test_a_central_study_reserves_in_a_shared_budget_once(river: Path) -> None:
    terms = ("--epsilon", "30", "--delta", "1e-5", "--unit", "patient_id")
    assert call("budget", "init", "patients.budget", *terms)[0] == 0
    before = set(os.listdir())
    code, _, err = call("serve", "init", "river.toml", "--budget", "patients.budget")
    assert code == 2 and "protects `user`" in err and 'write `unit = "patient_id"` before the first table' in err
    assert set(os.listdir()) == before | {"patients.budget.lock"}  # before, an unused store and its log stayed
    river.write_text('unit = "patient_id"\n' + river.read_text())
    assert call("budget", "init", "small.budget", "--epsilon", "0.1", *terms[2:])[0] == 0
    assert call("serve", "init", "river.toml", "--budget", "small.budget")[0] == 2
    code, _, err = call("serve", "init", "river.toml")
    assert code == 2 and "was begun with a shared budget" in err
    for name in ("river.db", "river.audit.log"):
        river.with_name(name).unlink()
    for _ in range(2):
        code, _, err = call("serve", "init", "river.toml", "--budget", "patients.budget")
        assert code == 0, err
    assert call("serve", "init", "river.toml")[0] == 0
    assert len(json.loads(call("budget", "show", "patients.budget", "--json")[1])["studies"]) == 1


def test_a_local_study_has_no_shared_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("local.toml").write_text(LOCAL.replace("STORE", "local.db"))
    code, _, err = call("serve", "init", "local.toml", "--budget", "patients.budget")
    assert code == 2 and "central studies" in err and not Path("local.db").exists()
    Path("local.toml").write_text('unit = "patient_id"\n' + Path("local.toml").read_text())
    assert "`unit` belongs to central studies" in call("serve", "check", "local.toml")[2]


def test_check_says_what_run_would_do_and_changes_nothing(river: Path) -> None:
    code, out, _ = call("serve", "check", "river.toml")
    assert code == 0 and "was not begun yet" in out and sorted(os.listdir()) == ["river.toml"]
    call("serve", "init", "river.toml")
    kept = {name: Path(name).read_bytes() for name in ("river.db", "river.audit.log")}
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


def test_check_says_that_a_study_is_full_and_what_a_plan_costs(river: Path) -> None:
    river.write_text(river.read_text().replace("users = 40", "users = 2"))
    code, out, _ = call("serve", "check", "river.toml")
    assert code == 0 and re.search(
        r"It has 3 states, 2 actions, 4 steps and \d blocks of people. A plan takes 0\.", out
    )
    assert "A plan takes" in call("serve", "init", "river.toml")[1]
    with serving(read_study_file(river), Clock(time.time())) as service:
        for user in range(2):
            service.ask("POST", "tickets", {"user": user})
    code, out, _ = call("serve", "check", "river.toml")
    assert code == 0 and "Tickets issued: 2 (full: 2 of 2)." in out and "without a ticket" in out


def test_a_plan_that_takes_long_can_be_computed_meanwhile(river: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_serve, "_LONG_PLAN", 0.0)
    assert "plan_delay = 1" in call("serve", "check", "river.toml")[2]
    river.write_text(river.read_text().replace("users = 40", "users = 40\nplan_delay = 1"))
    assert "plan_delay" not in call("serve", "check", "river.toml")[2]


def test_keys_are_added_listed_and_revoked(river: Path) -> None:
    code, _, err = call("serve", "key", "add", "river.toml", "--role", "app", "--name", "web shop")
    assert code == 2 and "privrl serve init" in err and not river.with_name("river.db").exists()
    call("serve", "init", "river.toml")
    code, out, _ = call("serve", "key", "add", "river.toml", "--role", "app", "--name", "web shop")
    assert code == 0 and re.fullmatch(r"prk_[\w-]{43}\n", out)
    assert "web shop" in call("serve", "key", "list", "river.toml")[1]
    assert call("serve", "key", "add", "river.toml", "--role", "app", "--name", "web shop")[0] == 2
    assert call("serve", "key", "add", "river.toml", "--role", "boss", "--name", "x")[0] == 2
    assert call("serve", "key", "revoke", "river.toml", "--name", "web shop")[0] == 0
    assert call("serve", "key", "revoke", "river.toml", "--name", "web shop")[0] == 2
    assert call("serve", "key", "add", "river.toml", "--role", "app", "--name", "web shop", "--days", "90")[0] == 0
    (shown,) = re.findall(r"\d{4}-\d\d-\d\dT[\d:]+Z", call("serve", "key", "list", "river.toml")[1])
    expires = datetime.fromisoformat(shown)
    assert abs(expires.timestamp() - time.time() - 90 * 86_400) < 60


def test_keys_that_nobody_could_use_are_said(river: Path) -> None:
    river.with_name("phone.toml").write_text(LOCAL.replace("STORE", "phone.db"))
    for name, role in (("phone", "app"), ("river", "device")):
        code, _, err = call("serve", "key", "add", f"{name}.toml", "--role", role, "--name", "x")
        assert code == 2 and "whose keys have the role" in err
    call("serve", "init", "river.toml")
    assert "no key" not in call("serve", "check", "river.toml")[2]
    call("serve", "key", "revoke", "river.toml", "--name", "first app")
    code, _, err = call("serve", "check", "river.toml")
    assert code == 0 and "`river` has no key with the role app" in err


def test_one_key_for_several_studies(river: Path) -> None:
    river.with_name("phone.toml").write_text(LOCAL.replace("STORE", "phone.db"))
    for name in ("river", "phone"):
        call("serve", "init", f"{name}.toml")
    both = ("serve", "key", "add", "river.toml", "phone.toml", "--role", "operator", "--name", "on call")
    assert call(*both)[0] == 0
    studies = [KeyedStudy.read(river.with_name(f"{name}.toml")).keys for name in ("river", "phone")]
    kept = [one.read()["on call"] for one in studies]
    assert kept[0] == kept[1] and kept[0].role == "operator"
    call("serve", "key", "revoke", "river.toml", "--name", "on call")
    assert call(*both)[0] == 2 and "on call" not in studies[0].read()


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


def pem_files(
    folder: Path,
    password: bytes = b"",
    begins: datetime = datetime(2020, 1, 1),
    ends: datetime = datetime(2120, 1, 1),
) -> tuple[Path, Path]:
    """A certificate of this machine for itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(begins).not_valid_after(ends)
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
