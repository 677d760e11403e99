"""A client for the back end of an app: people arrive, act, and finish. It needs neither JAX nor the extra `serve`.

Calls may be repeated without harm, because the app chooses all ids: the same person (and visit) gets the same ticket,
and a ticket counts once. A call therefore encodes its request once and sends the same bytes again after a lost answer,
a 500 or a 503, as long as `retry_seconds` allows. An answer's `Retry-After` is respected.
"""

import asyncio
import contextlib
import http.client
import json
import random
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

_PROBLEM = "urn:privrl:problem:"
_MAX_BATCH = 1_000  # people in one request
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0  # seconds between two attempts, unless the answer says `Retry-After`
_RETRIED = (429, 500, 502, 503, 504)
_ENDED = ("full", "purged")  # people are then served without a ticket

Step = Mapping[str, float]
"""`state`, `action`, `reward` and, unless the following step has it, `next_state`."""


class ServiceError(Exception):
    """The service refused a request, or did not answer.

    Attributes:
        status: the HTTP status; 0 if there was no answer.
        reason: a word that never changes, such as `wrong-key`; empty if the answer did not come from the service.
        retry_after: after this many seconds the same request may succeed; `None` if the answer does not say.
    """

    def __init__(self, status: int, reason: str, detail: str, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.status, self.reason, self.retry_after = status, reason, retry_after


@dataclass(frozen=True)
class Arrival:
    """A person who has arrived. Keep it until `finish`, or call `arrive` again with the same ids.

    Attributes:
        ticket: empty if the study is full or has ended; then `act` answers from the plan in force, and `finish` sends
            nothing.
        number: how many people arrived before.
        plan: the number of the person's plan.
        deadline: ISO 8601; a record that comes later does not count. `None` if no record of this person counts.
        arm: in a pilot, what the person gets.
    """

    ticket: str
    number: int | None = None
    plan: int | None = None
    deadline: str | None = None
    arm: str | None = None


class AppClient:
    """One study of a service, for an app with a key. Threads may share it.

    Arguments:
        url: the address of the study, such as `https://service.example/v1/studies/river`.
        key: an app's key.
        timeout: seconds to wait for one answer.
        retry_seconds: how long a call may repeat its request; 0 for a single attempt.
        context: for TLS, if the service has a certificate of your own authority.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        timeout: float = 10.0,
        retry_seconds: float = 60.0,
        context: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "/studies/" not in parts.path:
            raise ValueError("`url` must be that of a study, such as https://service.example/v1/studies/river.")
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path.rstrip("/")
        self._context = context or (ssl.create_default_context() if parts.scheme == "https" else None)
        self._headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        self._timeout, self._retry_seconds = timeout, retry_seconds
        self._idle: list[http.client.HTTPConnection] = []  # open connections that no thread uses now

    def arrive(self, user: str | int, visit: str | int = "", groups: Mapping[str, str] | None = None) -> Arrival:
        """Get a person's ticket; the same ids get the same one.

        Arguments:
            user: the person's id. The service stores a keyed digest of it.
            visit: if people return, a name of this visit that cannot be guessed, such as a random session id.
            groups: in a pilot with subgroups, the person's group in every partition.
        """
        body = {"user": user} | ({"visit": visit} if visit != "" else {}) | ({"groups": dict(groups)} if groups else {})
        try:
            found = self._post("tickets", body)
        except ServiceError as error:
            if error.reason in _ENDED:
                return Arrival("")
            raise
        return Arrival(found["ticket"], int(found["number"]), found["plan"], found["deadline"], found.get("arm"))

    def act(self, arrival: Arrival, state: int, step: int) -> int | None:
        """The action of a person; `None` if a pilot leaves the decision to the clinician."""
        return self._post("actions", _query(arrival, state, step))["action"]

    def act_many(self, queries: Iterable[tuple[Arrival, int, int]]) -> list[int | None]:
        """The actions of several people, each given as arrival, state and step."""
        bodies = [_query(*one) for one in queries]
        return [
            one["action"]
            for part in _parts(bodies)
            for one in self._post("actions:batch", {"queries": part})["answers"]
        ]

    def finish(self, arrival: Arrival, record: Sequence[Step] | Mapping[str, float]) -> None:
        """Send a person's record: the steps of an episode, or in a pilot the outcomes by name. It counts once."""
        self.finish_many([(arrival, record)])

    def finish_many(self, records: Iterable[tuple[Arrival, Sequence[Step] | Mapping[str, float]]]) -> None:
        """Send the records of several people. Those of one request are checked before any of them is counted.

        A record that comes too late does not count, also if the study has ended meanwhile.
        """
        for_pilot: list[dict[str, Any]] = []
        episodes: list[dict[str, Any]] = []
        for arrival, record in records:
            if not arrival.ticket:
                continue
            if isinstance(record, Mapping):
                for_pilot.append({"ticket": arrival.ticket, "outcomes": dict(record)})
            else:
                episodes.append({"ticket": arrival.ticket, "steps": [dict(step) for step in record]})
        for what, name, found in (("episodes", "episodes", episodes), ("outcomes", "records", for_pilot)):
            try:
                if len(found) == 1:
                    self._post(what, found[0])
                else:
                    for part in _parts(found):
                        self._post(f"{what}:batch", {name: part})
            except ServiceError as error:
                if error.reason not in _ENDED:
                    raise

    def close(self) -> None:
        """Close all connections that are not in use; a later call opens others."""
        while self._idle:
            self._idle.pop().close()

    def __enter__(self) -> "AppClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _post(self, what: str, content: Mapping[str, Any]) -> Any:
        """Send the same bytes until there is an answer that repeating would not change, or time is up."""
        body = json.dumps(content, allow_nan=False, default=_read_scalar).encode()
        end, pause = time.monotonic() + self._retry_seconds, _FIRST_PAUSE
        while True:
            try:
                return self._send(what, body)
            except ServiceError as error:
                wait = pause * random.uniform(0.5, 1.5) if error.retry_after is None else error.retry_after
                repeatable = error.status == 0 or error.status in _RETRIED
                if not repeatable or time.monotonic() + wait > end:
                    raise
            time.sleep(wait)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _send(self, what: str, body: bytes) -> Any:
        connection = self._connection()
        try:
            connection.request("POST", f"{self._path}/{what}", body, self._headers)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            detail = f"The service did not answer ({type(error).__name__}). Send the request again: it counts once."
            raise ServiceError(0, "", detail) from None
        self._idle.append(connection)
        if 200 <= answer.status < 300:
            return json.loads(content) if content else None
        raise _refusal(answer.status, content, answer.getheader("retry-after"))

    def _connection(self) -> http.client.HTTPConnection:
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        if self._context is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._context)


class AsyncAppClient:
    """`AppClient` for programs with an event loop: the same arguments and calls, to be awaited.

    Calls run in the threads of `asyncio.to_thread`.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        timeout: float = 10.0,
        retry_seconds: float = 60.0,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._client = AppClient(url, key, timeout=timeout, retry_seconds=retry_seconds, context=context)

    async def arrive(self, user: str | int, visit: str | int = "", groups: Mapping[str, str] | None = None) -> Arrival:
        """See `AppClient.arrive`."""
        return await asyncio.to_thread(self._client.arrive, user, visit, groups)

    async def act(self, arrival: Arrival, state: int, step: int) -> int | None:
        """See `AppClient.act`."""
        return await asyncio.to_thread(self._client.act, arrival, state, step)

    async def act_many(self, queries: Iterable[tuple[Arrival, int, int]]) -> list[int | None]:
        """See `AppClient.act_many`."""
        return await asyncio.to_thread(self._client.act_many, queries)

    async def finish(self, arrival: Arrival, record: Sequence[Step] | Mapping[str, float]) -> None:
        """See `AppClient.finish`."""
        await asyncio.to_thread(self._client.finish, arrival, record)

    async def finish_many(self, records: Iterable[tuple[Arrival, Sequence[Step] | Mapping[str, float]]]) -> None:
        """See `AppClient.finish_many`."""
        await asyncio.to_thread(self._client.finish_many, records)

    async def close(self) -> None:
        """See `AppClient.close`."""
        self._client.close()


def _query(arrival: Arrival, state: int, step: int) -> dict[str, Any]:
    return {"state": state, "step": step} | ({"ticket": arrival.ticket} if arrival.ticket else {})


def _read_scalar(value: object) -> object:
    """The number in a scalar of NumPy or JAX."""
    if not hasattr(value, "item"):
        raise TypeError("A record has numbers and text only.")
    return value.item()


def _parts(bodies: Sequence[dict[str, Any]]) -> Iterable[Sequence[dict[str, Any]]]:
    return (bodies[first : first + _MAX_BATCH] for first in range(0, len(bodies), _MAX_BATCH))


def _refusal(status: int, content: bytes, retry_after: str | None) -> ServiceError:
    """Read a problem document; an answer that is not one comes from a proxy."""
    reason, detail = "", f"The service answered {status}."
    try:
        found = json.loads(content)
        if found["type"].startswith(_PROBLEM):
            reason, detail = found["type"].removeprefix(_PROBLEM), str(found["detail"])
    except (ValueError, TypeError, KeyError, AttributeError):
        pass
    wait = float(retry_after) if retry_after is not None and retry_after.isascii() and retry_after.isdigit() else None
    return ServiceError(status, reason, detail, wait)
