"""Headless Chromium for tests: pages on the loopback fetch what they shall do, and post what came of it.

Every name before `.localhost` is an origin of its own, with a storage of its own, in one browser. Whatever is not the
driver's goes to the `answering` of a test, which is the server that the pages talk to.
"""

import itertools
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

MISSING = "Chromium or node is not installed (on Debian: apt-get install chromium nodejs), so no browser is run."
_SECONDS = 60
_PAGE = b"""<!doctype html><meta charset="utf-8"><title>test</title><script type="module">
const tab = new URLSearchParams(location.search).get("tab"), run = Object.getPrototypeOf(async () => {}).constructor;
for (;;) {
  const task = await (await fetch(`/driver/task?tab=${tab}`)).json();
  if (task.reload) { location.reload(); break; }
  let answer;
  try { answer = { value: await new run(task.code)() ?? null }; }
  catch (error) { answer = { error: `${error?.constructor.name}: ${error?.message}` }; }
  await fetch(`/driver/answer?tab=${tab}`, { method: "POST", body: JSON.stringify(answer) });
}
</script>"""


class Request(NamedTuple):
    """What a page sent."""

    method: str
    path: str
    body: bytes


class Reply(NamedTuple):
    """What a page gets; status 0 closes the connection without an answer."""

    body: bytes = b""
    kind: str = "application/json"
    status: int = 200
    headers: Mapping[str, str] = MappingProxyType({})


def program() -> str | None:
    """Where Chromium is."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class PageError(Exception):
    """What a page threw."""


class Tab:
    """One tab; what it is told to run is the body of an async function."""

    def __init__(self, browser: "Browser", number: int) -> None:
        self._browser, self._number = browser, number

    def start(self, code: str) -> None:
        """Runs something without waiting for it."""
        self._browser.tasks[self._number].put({"code": code})

    def result(self) -> Any:
        """What the last run returned; raises what it threw."""
        answer = self._browser.answers[self._number].get(timeout=_SECONDS)
        if "error" in answer:
            raise PageError(answer["error"])
        return answer["value"]

    def run(self, code: str) -> Any:
        """Runs something to its end."""
        self.start(code)
        return self.result()

    def reload(self) -> None:
        """As the button does; variables of the page are gone afterwards."""
        self._browser.tasks[self._number].put({"reload": True})


class Browser:
    """One profile; the browser can be killed and started again with what it had on disk.

    Arguments:
        profile: a folder of its own.
        answering: what the server of the pages answers to requests that are not the driver's.
    """

    def __init__(self, profile: Path, answering: Callable[[Request], Reply]) -> None:
        self._profile, self._numbers = profile, itertools.count()
        self.tasks: dict[int, queue.Queue[dict]] = defaultdict(queue.Queue)
        self.answers: dict[int, queue.Queue[dict]] = defaultdict(queue.Queue)
        self._http = _Server(("127.0.0.1", 0), _handler(self, answering))
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        self.start()

    def start(self) -> None:
        """A new process on the same profile."""
        found = program()
        assert found is not None
        number = next(self._numbers)
        command = [
            found,
            "--headless",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-background-timer-throttling",
            "--disable-renderer-backgrounding",
            "--disable-popup-blocking",
            "--force-prefers-reduced-motion",
            "--no-first-run",
            "--no-proxy-server",
            f"--user-data-dir={self._profile}",
            self._address("home", number),
        ]
        log, quiet = self._profile / "errors.txt", subprocess.DEVNULL
        with log.open("wb") as errors:
            self._process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=errors, start_new_session=True)
        self._home = Tab(self, number)
        try:
            self._home.run("return location.href")
        except queue.Empty as error:
            self.kill()
            said = log.read_text(errors="replace")[-2_000:]
            raise RuntimeError(f"Chromium opened no page within {_SECONDS} s. It said: {said}") from error

    def kill(self) -> None:
        """At once, with all of its processes."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Ends the browser and the server of its pages."""
        self.kill()
        self._http.shutdown()
        self._http.server_close()

    def tab(self, origin: str) -> Tab:
        """A new tab."""
        number = next(self._numbers)
        self._home.run(f"open({json.dumps(self._address(origin, number))})")
        return Tab(self, number)

    def _address(self, origin: str, number: int) -> str:
        return f"http://{origin}.localhost:{self._http.server_port}/driver/page?tab={number}"

    def reply(self, request: Request, answering: Callable[[Request], Reply]) -> Reply:
        """What a page gets."""
        where = urlsplit(request.path)
        if not where.path.startswith("/driver/"):
            return answering(request)
        tab = int(parse_qs(where.query)["tab"][0])
        if where.path == "/driver/page":
            return Reply(_PAGE, "text/html")
        if where.path == "/driver/task":
            return Reply(json.dumps(self.tasks[tab].get(timeout=_SECONDS)).encode())
        self.answers[tab].put(json.loads(request.body))
        return Reply()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a browser that was killed leaves connections behind
            super().handle_error(request, client_address)


def _handler(browser: Browser, answering: Callable[[Request], Reply]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            del args

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            try:
                reply = browser.reply(Request(self.command, self.path, body), answering)
                if reply.status:
                    self.send_response(reply.status)
                    sizes = {"content-type": reply.kind, "content-length": str(len(reply.body))}
                    for name, value in {**reply.headers, **sizes}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(reply.body)
            except (ConnectionError, queue.Empty):
                self.close_connection = True  # the page is gone
            else:
                self.close_connection = not reply.status

        do_GET = do_POST = do_OPTIONS = answer  # noqa: N815

    return Handler
