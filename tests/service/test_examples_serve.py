"""`examples/serve/`: study files, a systemd unit, a container file, a compose file, a manifest and alert rules."""

import configparser
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from privrl.service.metrics import NAMES
from privrl.service.public_endpoints import ENDPOINTS
from privrl.service.study_file import read_study_file

FOLDER = Path(__file__).parents[2] / "examples" / "serve"
UNIT, CONTAINER, PROXY = FOLDER / "privrl.service", FOLDER / "Containerfile", FOLDER / "nginx.conf"
COMPOSE, MANIFEST, ALERTS = FOLDER / "compose.yml", FOLDER / "kubernetes.yml", FOLDER / "alerts.yml"
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


def test_the_manifest_probes_what_exists_and_confines_the_container() -> None:
    yaml = pytest.importorskip("yaml")
    service, _, machines = yaml.safe_load_all(MANIFEST.read_text())
    pod = machines["spec"]["template"]["spec"]
    (first,), (serve,) = pod["initContainers"], pod["containers"]
    paths = {serve[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
    assert paths == {"/healthz", "/readyz"} < {one.path for one in ENDPOINTS}
    assert serve["livenessProbe"]["httpGet"]["path"] == "/healthz"  # a database that is away kills no machine
    assert re.search(r"useradd --uid (\d+)", CONTAINER.read_text())[1] == str(pod["securityContext"]["runAsUser"])  # type: ignore[index]
    volumes = {one["name"] for one in pod["volumes"]} | {
        one["metadata"]["name"] for one in machines["spec"]["volumeClaimTemplates"]
    }
    for container in (first, serve):
        assert {one["name"] for one in container["volumeMounts"]} <= volumes
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
    labels = machines["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == machines["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["ports"][0]["port"] == serve["ports"][0]["containerPort"] == 8080


def test_alerts_are_about_metrics_that_exist() -> None:
    yaml = pytest.importorskip("yaml")
    known = {f"{name}{suffix}" for name in NAMES for suffix in ("", "_total", "_bucket")}
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    used = [set(re.findall(r"\bprivrl_\w+", rule["expr"])) for rule in group["rules"]]
    assert all(used) and set().union(*used) <= known
    guide = Path(__file__).parents[2] / "docs" / "guides" / "monitoring.md"
    assert {name.removesuffix("_bucket") for name in set().union(*used)} <= set(
        re.findall(r"privrl_\w+", guide.read_text())
    )
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"])


def commands() -> list[list[str]]:
    """Every command line of `privrl` in the unit, the container file and the manifest."""
    found = re.findall(r"^ExecStart=\S+/privrl (.+)$", UNIT.read_text(), re.MULTILINE)
    (container,) = re.findall(r'^CMD \["privrl", (.+)\]$', CONTAINER.read_text(), re.MULTILINE)
    (manifest,) = re.findall(r"command: \[privrl, (.+)\]$", MANIFEST.read_text(), re.MULTILINE)
    (begun,) = re.findall(r"\|\| privrl (.+)\]$", MANIFEST.read_text(), re.MULTILINE)
    parts = [re.findall(r'"([^"]+)"', container), manifest.replace('"', "").split(", "), begun.split()]
    return [line.split() for line in found] + parts


def test_commands_exist() -> None:
    from test_site import check_command

    assert [arguments[:2] for arguments in commands()] == [["serve", "run"]] * 3 + [["store", "new-log"]]
    for arguments in commands():
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
