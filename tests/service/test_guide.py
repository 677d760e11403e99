"""Every example of the guides of the service, replayed against a running server: files, commands, Python, JavaScript.

Blocks run in the order of the pages, in one folder. Ports are replaced by free ones. `...` in the output of a
command stands for anything; keys are those that were really printed.
"""

import contextlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Browser, Reply, Request, program
from postgres import Cluster
from service.answers import Caller, over_http
from test_cli import call
from test_docs import Block, blocks

from privrl.service.refusals import REASONS
from privrl.service.study_file import read_study_file

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "guides" / f"{name}.md" for name in ("service", "devices", "operating")]
TEXT = "\n".join(page.read_text() for page in PAGES)
WORLD_JS = "const world = (state, action) => ({ reward: 0, after: Math.min(2, state + action) });\n"
PORTS = ("8080", "8081")


def free_ports() -> list[str]:
    """Two ports of this machine that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in PORTS]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [str(one.getsockname()[1]) for one in sockets]


class Replay:
    """One reader of the guide: a folder, the ports of their service, and its process."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **replaced: str) -> None:
        self.folder, self._patch = folder, monkeypatch
        ports = zip(PORTS, free_ports(), strict=True)
        self._replaced = {f"127.0.0.1:{old}": f"127.0.0.1:{new}" for old, new in ports} | replaced
        self._server: subprocess.Popen[str] | None = None
        self._keys: dict[str, str] = {}
        self.out = ""

    def text(self, text: str) -> str:
        for old, new in self._replaced.items():
            text = text.replace(old, new)
        return text

    def console(self, block: Block) -> None:
        """Runs the lines of a block that begin with `$`, and compares what they print."""
        parts = re.split(r"^\$ ", self.text(block.text), flags=re.MULTILINE)[1:]
        for part in parts:
            line, _, shown = part.partition("\n")
            self.out, code = self._ran(line)
            expected = re.escape(shown.strip()).replace(re.escape("..."), ".*").replace("prk_.*", r"prk_[\w-]{43}")
            found = self.out.strip()
            assert re.fullmatch(expected, found, re.DOTALL), f"line {block.line}: `{line}` printed\n{found}"
            assert code == (2 if shown.startswith("Error:") else 0), f"line {block.line}: `{line}` ended with {code}"

    def _ran(self, line: str) -> tuple[str, int]:
        if line.startswith("privrl serve run"):
            return self._serve(shlex.split(line)[3:]), 0
        if line.startswith("export "):
            for name, value in re.findall(r"(\w+)=(\S+)", line):
                key = value.startswith("prk_")
                self._patch.setenv(name, self._keys[name.removesuffix("_KEY").lower()] if key else value)
            return "", 0
        if line.startswith("privrl "):
            called = call(*shlex.split(line)[1:])
            self._keys |= dict(re.findall(r"^ +(app|operator) +(prk_\S+)$", called.out, re.MULTILINE))
            return called.out + called.err, called.code
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
        return done.stdout, done.returncode

    def _serve(self, arguments: list[str]) -> str:
        self.stop()
        command = [sys.executable, "-m", "privrl.cli", "serve", "run", *arguments]
        self._server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._server.stdout is not None
        lines = []
        for line in self._server.stdout:
            lines.append(line)
            if line == "Ready.\n":
                break
        return "".join(lines)

    def stop(self) -> None:
        """Ends the service, as whoever runs it would."""
        if self._server is not None:
            self._server.send_signal(signal.SIGTERM)
            assert self._server.wait(60) == 0
            assert self._server.stdout is not None
            self._server.stdout.close()
            self._server = None

    def python(self, block: Block) -> None:
        exec(compile(self.text(block.text), "guide", "exec"), {"world": lambda s, a: (0.0, min(2, s + a))})

    def node(self, block: Block) -> None:
        path = self.folder / "app.mjs"
        path.write_text(WORLD_JS + self.text(block.text))
        done = subprocess.run(["node", path], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr

    def browser(self, block: Block) -> None:
        """In a page of another origin than the service, which has its own copy of the package."""

        def answering(request: Request) -> Reply:
            kept = self.folder / "privrl-client" / request.path.rsplit("/", 1)[1]
            return Reply(kept.read_bytes(), "text/javascript") if kept.suffix == ".mjs" else Reply(status=404)

        sha256 = self.out.split()[0]
        profile = self.folder / f"profile {block.line}"
        profile.mkdir()
        with contextlib.closing(Browser(profile, answering)) as browser:
            tab = browser.tab("guide")
            code = f'const HASH = "{sha256}";\n' + WORLD_JS + self.text(block.text) + "return await study.send();"
            assert tab.run(code) is True


@pytest.fixture
def replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Replay]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    made = Replay(tmp_path, monkeypatch)
    yield made
    made.stop()


@pytest.mark.slow
def test_the_guide_can_be_followed_from_its_beginning_to_its_end(replay: Replay) -> None:
    if program() is None or not all(map(shutil.which, ("node", "npm", "curl"))):
        pytest.skip(
            "The guide needs node, npm, curl and Chromium (on Debian: apt-get install nodejs npm curl chromium)."
        )
    for setting, value in (("offline", "true"), ("audit", "false"), ("update_notifier", "false"), ("cache", "npm")):
        replay._patch.setenv(f"npm_config_{setting}", value)
    done = []
    for block in blocks(TEXT):
        kind = block.mark.split()[0] if block.mark else ""
        if kind == "file":
            (replay.folder / block.mark.split()[1]).write_text(block.text)
        elif kind in ("replay", "stopped"):
            if kind == "stopped":
                replay.stop()
            replay.console(block)
        elif kind == "no-run":
            replay.python(block)
        elif kind in ("node", "browser"):
            getattr(replay, kind)(block)
        else:
            replayed = kind == "machine" or "pip install" in block.text or block.language == "toml"  # a part of a file
            assert replayed, f"line {block.line} is not replayed"
        done.append(kind)
    assert {"file", "replay", "stopped", "no-run", "node", "browser", "machine"} <= set(done)


@pytest.mark.slow
def test_two_machines_serve_one_study(postgres: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The section about PostgreSQL, with two processes on one database; then people go from one to the other."""
    psycopg = pytest.importorskip("psycopg")
    shown = {block.mark: block for block in blocks(TEXT) if block.mark.startswith("machine")}
    river = next(block.text for block in blocks(TEXT) if block.mark == "file river.toml")
    with contextlib.ExitStack() as stack:
        address = postgres.new().replace("user=owner&", "")
        monkeypatch.setenv("PGUSER", "owner")
        database = stack.enter_context(psycopg.connect(address, autocommit=True))
        database.execute("DROP ROLE IF EXISTS service; CREATE ROLE service LOGIN")
        stack.callback(database.execute, "DROP OWNED BY service; DROP ROLE service")
        machines = []
        for name in ("machine one", "machine two"):
            folder = tmp_path / name.replace(" ", "-")
            folder.mkdir()
            monkeypatch.chdir(folder)
            machine = Replay(folder, monkeypatch, **{"postgresql:///lake": address})
            stack.callback(machine.stop)
            machines.append(machine)
            text = river.replace('"river"', '"lake"').replace("river.db", address).replace("river.audit", "lake.audit")
            (folder / "lake.toml").write_text(text)
            machine.console(Block("console", 0, _quiet(shown[name].text), ""))
        shutil.copy(machines[0].folder / "lake.audit.log", "copy-of-another-machine.audit.log")
        machines[1].console(Block("console", 0, _quiet(shown["machine restored"].text), ""))
        key = machines[0]._keys["app"]
        doors = [stack.enter_context(over_http(f"http://{one.text('127.0.0.1:8080')}")) for one in machines]
        ask = [Caller(send, "lake", key) for send in doors]
        tickets = [ask[i % 2]("POST", "tickets", {"user": i // 2}).json() for i in range(8)]
        assert tickets[::2] == tickets[1::2]
        assert [ticket["number"] for ticket in tickets[::2]] == ["0", "1", "2", "3"]
        for one in ask:
            assert one("POST", "episodes", {"ticket": tickets[0]["ticket"], "steps": []}).status == 204
        assert ask[0]("GET", "plan").visible == ask[1]("GET", "plan").visible


def _quiet(text: str) -> str:
    """Commands of a block, with whatever they print."""
    return "".join(f"{line}\n...\n" for line in text.splitlines() if line.startswith("$ "))


def test_study_files_of_the_guide_can_be_served(tmp_path: Path) -> None:
    kinds = []
    for block in blocks(TEXT):
        if block.mark.startswith("file "):
            path = tmp_path / block.mark.split()[1]
            path.write_text(block.text)
            kinds.append(read_study_file(path).kind)
    assert kinds == ["central", "local"]


def test_the_guide_names_only_reasons_that_exist() -> None:
    named = re.findall(r"urn:privrl:problem:([\w-]+)", TEXT)
    assert set(named) <= set(REASONS)


def test_keys_are_never_shown_in_full() -> None:
    assert not re.search(r"prk_[\w-]{8}", TEXT)
