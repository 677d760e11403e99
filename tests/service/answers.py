"""What an attacker over HTTP sends and sees: raw requests, and answers compared to the byte."""

import contextlib
import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from privrl.audit.findings import Finding

_PROBLEM = "urn:privrl:problem:"
_OF_THE_MOMENT = ("date", "x-request-id")  # headers that differ between any two answers
_TIMEOUT = 60.0


@dataclass(frozen=True)
class SeenAnswer:
    """An answer: everything of it that can be seen."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    seconds: float = 0.0

    @property
    def visible(self) -> tuple[int, tuple[tuple[str, str], ...], bytes]:
        """What is compared: status, headers in their order, and body."""
        kept = tuple((name.lower(), value) for name, value in self.headers if name.lower() not in _OF_THE_MOMENT)
        return self.status, kept, self.body

    @property
    def form(self) -> tuple[int, tuple[str, ...], int]:
        """What is compared of answers whose content differs by right: status, names of headers, length of the body."""
        return self.status, tuple(name for name, _ in self.visible[1]), len(self.body)

    @property
    def reason(self) -> str:
        """The reason of a problem document; empty for anything else."""
        content = self.json()
        named = content.get("type", "") if isinstance(content, dict) else ""
        return named.removeprefix(_PROBLEM) if isinstance(named, str) and named.startswith(_PROBLEM) else ""

    def json(self) -> Any:
        """The body as JSON; None if it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


Send = Callable[[str, str, dict[str, str], bytes], SeenAnswer]
"""Method, path, headers and body to the answer."""


@contextlib.contextmanager
def over_http(url: str) -> Iterator[Send]:
    """Sends to a running service, over one connection that is made again when it was closed."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
        raise ValueError(f"{url!r} is not an address; give one of a service, such as http://127.0.0.1:8080.")
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=_TIMEOUT, context=ssl.create_default_context()
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT)

    def send(method: str, path: str, headers: dict[str, str], body: bytes) -> SeenAnswer:
        for attempt in (0, 1):
            began = time.perf_counter()
            try:
                connection.request(method, path, body or None, headers)
                answer = connection.getresponse()
                content = answer.read()
                return SeenAnswer(answer.status, tuple(answer.getheaders()), content, time.perf_counter() - began)
            except (http.client.HTTPException, ConnectionError) as error:
                connection.close()
                if attempt:
                    raise ValueError(f"`{url}` does not answer: {type(error).__name__}.") from error
        raise AssertionError

    try:
        yield send
    except OSError as error:
        raise ValueError(f"`{url}` cannot be reached: {error}.") from error
    finally:
        connection.close()


@dataclass
class Caller:
    """Whoever talks to one study."""

    send: Send
    study: str
    key: str = ""

    def __call__(self, method: str, what: str = "", content: Any = None, *, key: str | None = None) -> SeenAnswer:
        """A request to an address below the study's; `/...` is one of the service itself."""
        key = self.key if key is None else key
        headers = {"authorization": f"Bearer {key}"} if key else {}
        body = content if isinstance(content, bytes) else b"" if content is None else json.dumps(content).encode()
        if body:
            headers["content-type"] = "application/octet-stream" if isinstance(content, bytes) else "application/json"
        path = what if what.startswith("/") else f"/v1/studies/{self.study}/{what}".rstrip("/")
        return self.send(method, path, headers, body)


@dataclass
class Notebook:
    """What one attack has compared and found."""

    attack: str
    tried: int = 0
    found: list[str] = field(default_factory=list)

    def check(self, fine: bool, words: str) -> bool:
        """One comparison; `words` say what was found where it is not fine."""
        self.tried += 1
        if not fine:
            self.found.append(words)
        return fine

    def alike(self, what: str, one: SeenAnswer, other: SeenAnswer) -> None:
        """Two answers that must not differ in anything that can be seen."""
        same = one.visible == other.visible
        self.check(same, f"{what} are answered differently: {_difference(one, other)}")

    def refused(self, what: str, seen: SeenAnswer, *reasons: str) -> None:
        """An answer that must be a refusal, for one of these reasons if any are given."""
        fine = 400 <= seen.status < 500 and bool(seen.reason) and (not reasons or seen.reason in reasons)
        got = f"{seen.status} {seen.reason}".strip()
        self.check(fine, f"{what}: answered {got}, and not refused{' as ' + ' or '.join(reasons) if reasons else ''}")

    def finding(self) -> Finding:
        """All of it."""
        return Finding(self.attack, self.tried, tuple(self.found))


def _difference(one: SeenAnswer, other: SeenAnswer) -> str:
    if one.status != other.status:
        return f"status {one.status} and {other.status}"
    if one.visible[1] != other.visible[1]:
        names = sorted({name for name, _ in set(one.visible[1]) ^ set(other.visible[1])})
        return f"headers {', '.join(names) or 'in another order'}"
    return f"bodies of {len(one.body)} and {len(other.body)} bytes"
