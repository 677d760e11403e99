"""The page of `privrl serve demo`: what it may load, and the command."""

import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from privrl.service.application import make_application
from privrl.service.demo_endpoints import begin_demo, demo_endpoints
from privrl.service.public_endpoints import ENDPOINTS

from .serving import serving
from .vectors import VECTORS

PAGES = ("", "demo.css", "demo.mjs", "privrl-client.mjs")


def test_the_page_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    file = begin_demo(tmp_path)
    with serving(file) as service:
        service.app = make_application(service.studies, (*ENDPOINTS, *demo_endpoints(file)))
        for name in PAGES:
            reply = service.ask("GET", f"/demo/{name}")
            policy = reply.headers["content-security-policy"]
            assert reply.status == 200
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';")
            assert set(re.findall(r"\w+://[^\"' ]+", reply.body.decode())) <= {"http://www.w3.org/2000/svg"}
        app = service.ask("GET", "/demo/app.json").json
        assert service.ask("GET", app["study"]).status == 200
        assert app["world"]["transition"][0][1] == [0.4, 0.6, 0.0, 0.0, 0.0, 0.0]
    html = (VECTORS.parent / "demo.html").read_text()
    assert "style=" not in html and "onclick=" not in html and "<script>" not in html


@pytest.mark.slow
def test_the_command_serves_the_page_and_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "privrl.cli", "serve", "demo", "--port", "0"]
    environment = {"TMPDIR": str(tmp_path), "JAX_PLATFORMS": "cpu", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert any(line.startswith("Ready.") for line in lines)
        found = re.search(r"http://127\.0\.0\.1:\d+/demo/", next(lines))
        assert found is not None
        with urllib.request.urlopen(found[0], timeout=30) as reply:
            assert b"Swim a river" in reply.read()
        assert len(list(tmp_path.glob("privrl-demo-*"))) == 1
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert list(tmp_path.glob("privrl-demo-*")) == []
