"""What `examples/serve/` offers for deployments: study files, a systemd unit, a container file and a compose file."""

import configparser
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from privrl.service.public_endpoints import ENDPOINTS
from privrl.service.study_file import read_study_file

FOLDER = Path(__file__).parents[2] / "examples" / "serve"
UNIT, CONTAINER, PROXY = FOLDER / "privrl.service", FOLDER / "Containerfile", FOLDER / "nginx.conf"
COMPOSE = FOLDER / "compose.yml"
INSTRUCTIONS = {"ARG", "FROM", "COPY", "RUN", "ENV", "USER", "WORKDIR", "VOLUME", "EXPOSE", "CMD", "HEALTHCHECK"}


@pytest.mark.parametrize("name", ["river", "phone"])
def test_study_files_can_be_served(name: str) -> None:
    file = read_study_file(FOLDER / f"{name}.toml")
    assert file.name == name and file.kind == ("central" if name == "river" else "local")
    assert Path(file.place).parent == FOLDER and file.log_place.parent == FOLDER


def test_the_study_of_the_compose_file_can_be_served(tmp_path: Path) -> None:
    (tmp_path / "lake.toml").write_text((FOLDER / "lake.toml").read_text().replace("/logs", str(tmp_path)))
    file = read_study_file(tmp_path / "lake.toml")
    assert (file.name, file.kind, file.place) == ("lake", "central", "postgresql:///lake")


def test_the_compose_file_checks_health_and_forwards_to_both_machines(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    (health,) = re.findall(r"CMD (\[.+\])\n$", CONTAINER.read_text())  # the last line, which the OCI format ignores
    for name in ("one", "two"):
        assert services[name]["healthcheck"]["test"] == ["CMD", *json.loads(health)]
        assert services[name]["command"].split()[:3] == ["privrl", "serve", "run"]
    assert services["one"]["volumes"] != services["two"]["volumes"]  # each has a log of its own
    assert [name for name, service in services.items() if "ports" in service] == ["proxy"]
    made = tmp_path / "made.conf"
    script = services["proxy"]["command"][2].replace("/etc/privrl/nginx.conf", str(PROXY))
    script = script.replace("/etc/nginx/conf.d/default.conf", str(made)).split("exec nginx")[0]
    subprocess.run(["sh", "-ec", script], check=True, timeout=60)
    text = made.read_text()
    assert re.findall(r"^ +server (\S+) max_fails=0;", text, re.MULTILINE) == ["one:8080", "two:8080"]
    assert "listen 80;" in text and "ssl" not in text and "limit_req zone" in text


def commands() -> list[list[str]]:
    """Every command line of `privrl` in the unit, and the one of the container file."""
    found = re.findall(r"^ExecStart=\S+/privrl (.+)$", UNIT.read_text(), re.MULTILINE)
    (container,) = re.findall(r'^CMD \["privrl", (.+)\]$', CONTAINER.read_text(), re.MULTILINE)
    return [line.split() for line in found] + [re.findall(r'"([^"]+)"', container)]


def test_commands_exist() -> None:
    from test_site import check_command

    assert len(commands()) == 2
    for arguments in commands():
        assert arguments[:2] == ["serve", "run"]
        check_command(arguments)


def test_the_unit_is_one_and_does_not_restart_what_was_refused(tmp_path: Path) -> None:
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(UNIT.read_text())
    assert unit.sections() == ["Unit", "Service", "Install"]
    service = unit["Service"]
    assert service["RestartPreventExitStatus"] == "2" and service["LimitCORE"] == "0" and service["UMask"] == "0077"
    program = shutil.which("systemd-analyze")
    if program is not None:
        copy = tmp_path / UNIT.name
        copy.write_text(UNIT.read_text().replace("/opt/privrl/bin/privrl", sys.executable))
        done = subprocess.run([program, "verify", copy], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_container_file_takes_its_base_as_an_argument() -> None:
    text = re.sub(r"\\\n", " ", CONTAINER.read_text())
    lines = [line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#")]
    assert {word for word, _ in lines} == INSTRUCTIONS
    assert lines[:2] == [["ARG", "BASE"], ["FROM", "${BASE}"]]
    order = [word for word, _ in lines]
    assert order.index("RUN") < order.index("USER") < order.index("CMD")
    assert dict(lines)["USER"] != "root"


def test_the_proxy_keeps_no_record_and_lets_every_request_through() -> None:
    text = PROXY.read_text()
    sizes = dict(re.findall(r"(client_max_body_size|client_body_buffer_size) (\d+)m;", text))
    assert {int(size) * 2**20 for size in sizes.values()} == {max(endpoint.limit for endpoint in ENDPOINTS)}
    assert "access_log off;" in text and "127.0.0.1:8081" not in text


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_no_file_names_a_host(path: Path) -> None:
    """No registry, no mirror, no download: this machine's own addresses are the only ones."""
    text = path.read_text()
    named = set(re.findall(r"^upstream (\w+) ", text, re.MULTILINE))
    assert set(re.findall(r"\w+://([^\s/:;'\"]+)", text)) <= {"127.0.0.1"} | named
    assert not re.search(r"\b[\w-]+\.(com|io|org|net|dev|cloud|local)\b", text)
    assert not re.search(r"prk_[\w-]{8}", text)
