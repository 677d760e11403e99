"""A service inside the test's process: study files, served studies, and requests without a network."""

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from clocks import Clock

from privrl.service.application import Endpoint, make_application
from privrl.service.listening import make_study
from privrl.service.openapi import openapi_document
from privrl.service.opening import begin_study
from privrl.service.public_endpoints import ENDPOINTS
from privrl.service.served_studies import ServedStudies
from privrl.service.study_file import StudyFile, read_study_file

CENTRAL = """
kind = "central"
name = "river"
recipe = "dp-ucbvi"
users = 40
epsilon = 1.0
delta = 1e-6
patience = 1000.0
store = "STORE"
[world]
env = "riverswim"
arguments = { states = 3, horizon = 4 }
"""
OPEN = CENTRAL.replace("users = 40", "open_ended = { first = 1, ceiling = 400 }")  # epochs of 1, 2, 4... releases
LOCAL = """
kind = "local"
name = "phone"
recipe = "ldp-ucbvi"
users = 40
epsilon = 1.0
store = "STORE"
valid = 1000.0
[world]
env = "riverswim"
arguments = { states = 3, horizon = 4 }
"""


Headers = dict[str, str] | None


class Reply(NamedTuple):
    """An answer as a client gets it."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def reason(self) -> str:
        """The reason of a problem document."""
        assert self.headers["content-type"] == "application/problem+json"
        found = self.json
        assert found["status"] == self.status and set(found) == {"type", "title", "status", "detail"}
        return found["type"].removeprefix("urn:privrl:problem:")


def study_file(folder: Path, text: str, store: Path | str = "study.db", **changed: Any) -> StudyFile:
    """A study file with its keys, begun; `changed` entries replace those of the text."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [line for line in text.splitlines() if line.split(" = ")[0] not in changed]
    lines[1:1] = [f"{key} = {json.dumps(value)}" for key, value in changed.items()]
    path = folder / "study.toml"
    path.write_text("\n".join(lines).replace("STORE", str(store)))
    file = read_study_file(path)
    begin_study(file)
    return file


def documented(endpoints: tuple[Endpoint, ...], method: str, path: str) -> tuple[set[str], set[str]]:
    """The statuses and the reasons that the OpenAPI document names for a request."""
    paths = json.loads(openapi_document(endpoints))["paths"]
    known = [
        name for name in paths if re.fullmatch(re.sub(r"{\w+}", "[^/]+", name), path) and method.lower() in paths[name]
    ]
    answers = {status: one for name in known for status, one in paths[name][method.lower()]["responses"].items()}
    words = " ".join(one["description"] for one in answers.values())
    return set(answers), set(re.findall(r"urn:privrl:problem:([a-z-]+)", words))


class Service:
    """A served study and its application, driven by one event loop."""

    def __init__(self, file: StudyFile, clock: Clock | None = None) -> None:
        self.served: Any = make_study(file) if clock is None else make_study(file, clock)
        self.studies = ServedStudies([self.served])
        self.offer(ENDPOINTS)
        self._runner = asyncio.Runner()
        self.key = ""

    def offer(self, endpoints: tuple[Endpoint, ...]) -> None:
        """What the application has, by default that of the first listener."""
        self._endpoints = endpoints
        self.app = make_application(self.studies, endpoints)

    def ask(self, method: str, path: str, content: Any = None, **options: Any) -> Reply:
        """The answer to one request, see `asking`."""
        return self._runner.run(self.asking(method, path, content, **options))

    async def asking(
        self,
        method: str,
        path: str,
        content: Any = None,
        *,
        key: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> Reply:
        """The same where several requests are under way; `path` without a slash is below the study's."""
        body = content if isinstance(content, bytes) else b"" if content is None else json.dumps(content).encode()
        sent = {"host": "testing", **(headers or {})}
        if key is None:
            key = self.key
        if key:
            sent["authorization"] = f"Bearer {key}"
        path = path if path.startswith("/") else f"/v1/studies/{self.served.name}/{path}".rstrip("/")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        messages: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            messages.append(message)

        await self.app(scope, receive, send)
        start, *parts = messages
        found = {name.decode(): value.decode() for name, value in start["headers"]}
        self.request_id = found.pop("x-request-id", "")  # random, so that answers can be compared without it
        reply = Reply(start["status"], found, b"".join(part.get("body", b"") for part in parts))
        statuses, reasons = documented(self._endpoints, method, path)
        assert not statuses or str(reply.status) in statuses
        if reply.headers.get("content-type") == "application/problem+json":
            assert reply.reason in reasons | {"failed", "not-found", "not-allowed"}
        return reply

    def content(self) -> list[str]:
        """Everything in the store, raw rows included; of a file."""
        return self.run(self.served.run_in_writer(lambda store: list(store._engine.db.iterdump())))

    def run(self, work: Any) -> Any:
        """Runs a coroutine in the service's loop."""
        return self._runner.run(work)

    def describe(self) -> dict[str, Any]:
        """What the store shows now."""
        return self.run(self.served.run_in_writer(lambda store: store.describe()))

    def close(self) -> None:
        self.studies.stop()
        self._runner.close()


@contextlib.contextmanager
def serving(file: StudyFile, clock: Clock | None = None) -> Iterator[Service]:
    """A service that is ready, with an app's key."""
    keys = file.keys
    name = f"app {len(keys.read())}"
    service = Service(file, clock)
    if file.kind != "local":
        service.key = keys.add("app", name)
    service.studies.start()
    try:
        service.studies.wait(120.0)
        yield service
    finally:
        service.close()
