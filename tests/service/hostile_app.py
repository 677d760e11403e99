"""A central study over HTTP as a hostile app sees it: can it learn from answers who was counted, or forge a ticket?

The question is what an app learns about people whom others have sent, or whether what it sent was in time: everything
that can be seen of an answer (status, headers and their order, body, sizes, time) is compared between a person who was
counted and one who was not.
"""

import base64
import json
import math
import time
from datetime import datetime
from typing import Any

import numpy as np
from service.answers import Caller, Notebook, SeenAnswer

from privrl.audit.findings import Finding

_CANARY = 86_420_975_310  # a number that no answer has by chance
_TIMED = 24
_IMPLAUSIBLE = 1e-6
_FLIPS = 40
_WAIT = 10.0  # seconds until a deadline that are worth waiting for


class HostileApp:
    """Attacks one central study with an app's key; `rng` names people and chooses what is changed."""

    def __init__(self, call: Caller, rng: np.random.Generator) -> None:
        self._call, self._rng = call, rng
        self._facts: dict[str, Any] = call("GET").json()

    def attacks(self) -> tuple[Finding, ...]:
        """All of them; together they take some forty places of the study."""
        return (
            self._keys(),
            self._one_place(),
            self._membership(),
            self._public_answers(),
            self._late(),
            self._forged(),
            self._unreadable(),
            self._sizes(),
            self._timing(),
        )

    # ---------------------------------------------------------------------------------------------- honest requests

    def _person(self) -> str:
        return f"audited {self._rng.integers(2**62):x}"

    def _arrive(self, person: str | None = None) -> SeenAnswer:
        return self._call("POST", "tickets", {"user": self._person() if person is None else person})

    def _ticket(self) -> str:
        seen = self._arrive()
        content = seen.json()
        if seen.status != 200 or not isinstance(content, dict):
            raise ValueError(
                f"The study gives out no tickets ({seen.status} {seen.reason}). Give an app's key, and attack a study "
                "that is open and was made for it: an attack takes places."
            )
        return content["ticket"]

    def _steps(self) -> list[dict[str, Any]]:
        length = int(self._rng.integers(1, self._facts["horizon"] + 1))
        states, actions = self._facts["states"], self._facts["actions"]
        return [
            {"state": int(self._rng.integers(states)), "action": int(self._rng.integers(actions)), "reward": 0.0}
            for _ in range(length)
        ]

    def _end(self, ticket: str, steps: Any = None) -> SeenAnswer:
        return self._call("POST", "episodes", {"ticket": ticket, "steps": self._steps() if steps is None else steps})

    # -------------------------------------------------------------------------------------------------- the attacks

    def _keys(self) -> Finding:
        """Nothing without a key, nor with one that is wrong; both are told the same about every ticket."""
        notes = Notebook("keys")
        ticket = self._ticket()
        requests: dict[str, Any] = {
            "tickets": {"user": "somebody"},
            "actions": {"ticket": ticket, "state": 0, "step": 0},
            "actions:batch": {"queries": [{"ticket": ticket, "state": 0, "step": 0}, {"state": 0, "step": 0}]},
            "episodes": {"ticket": ticket, "steps": self._steps()},
            "episodes:batch": {"episodes": [{"ticket": ticket, "steps": self._steps()}]},
        }
        for what, content in requests.items():
            for key, reason in (("", "no-key"), ("prk_wrong", "wrong-key")):
                if key == self._call.key:
                    continue
                notes.refused(f"`{what}` with {reason}", self._call("POST", what, content, key=key), reason)
        for place in ("/metrics", "/operator/", "/operator/studies"):
            notes.refused(f"the operator's `{place}` on the apps' port", self._call("GET", place), "not-found")
        for what in ("tickets?user=somebody", "episodes?user=somebody"):
            notes.refused(f"GET `{what}`", self._call("GET", what), "not-allowed")
        return notes.finding()

    def _one_place(self) -> Finding:
        """An id has one ticket, before and after its record; another id has another."""
        notes = Notebook("one-place")
        person = self._person()
        first = self._arrive(person)
        notes.alike("two requests for one person's ticket", first, self._arrive(person))
        self._end(first.json()["ticket"])
        notes.alike("requests for a ticket before and after the record", first, self._arrive(person))
        notes.check(self._ticket() != first.json()["ticket"], "two people have one ticket")
        number = int(self._rng.integers(2**40))
        one, same = self._arrive(str(number)), self._call("POST", "tickets", {"user": number})
        notes.alike("an id as text and as a number", one, same)
        return notes.finding()

    def _membership(self) -> Finding:
        """Somebody who was counted, and somebody who was not, in every order."""
        notes = Notebook("membership")
        counted, fresh, third = (self._ticket() for _ in range(3))
        first = self._end(counted)
        notes.check(200 <= first.status < 300, f"an honest record is answered {first.status} {first.reason}")
        bad = [{"state": _CANARY, "action": 0, "reward": 0.0}]
        notes.alike("unreadable records of one counted and one not", self._end(counted, bad), self._end(fresh, bad))
        for what, steps in (("the same", None), ("another", self._steps()), ("an empty", [])):
            notes.alike(f"{what} record sent again, and the first one,", self._end(counted, steps), first)
        query = {"state": 0, "step": 0}
        acted = [self._call("POST", "actions", {"ticket": one, **query}).form for one in (counted, fresh)]
        notes.check(acted[0] == acted[1], "actions for one counted and one not have other sizes or headers")
        known, unknown = ({"ticket": one, "steps": self._steps()} for one in (counted, fresh))
        batch = "episodes:batch"
        notes.alike(
            "batches that begin with one counted and with one not",
            self._call("POST", batch, {"episodes": [known, unknown]}),
            self._call("POST", batch, {"episodes": [{"ticket": third, "steps": self._steps()}, known]}),
        )
        notes.alike("the first record after a batch, and one sent again,", self._end(self._ticket()), self._end(third))
        return notes.finding()

    def _public_answers(self) -> Finding:
        """What anybody can read does not move when a record is counted, as long as no block closes."""
        notes = Notebook("public-answers")
        places = ("", "plan", "certificate", "/v1/studies", "/openapi.json", "/healthz", "/readyz")
        ticket = self._ticket()
        before = [self._call("GET", place) for place in places]
        self._end(ticket)
        after = [self._call("GET", place) for place in places]
        plans = [seen.json().get("plan") for seen in (before[1], after[1])]
        if plans[0] == plans[1]:  # otherwise a block has closed in between, at its public time
            for place, one, other in zip(places, before, after, strict=True):
                notes.alike(f"`{place or 'the study'}` before and after a record", one, other)
        return notes.finding()

    def _late(self) -> Finding:
        """A record after its deadline is answered as one in time; tried where the deadline is seconds away."""
        notes = Notebook("late-records")
        late = self._arrive().json()
        wait = (
            datetime.fromisoformat(late["deadline"]).timestamp() - time.time()
            if isinstance(late, dict) and "deadline" in late
            else math.inf
        )
        if wait <= _WAIT:
            time.sleep(max(0.0, wait) + 0.1)
            answers = [self._end(late["ticket"]) for _ in range(2)]
            for answer in answers:
                notes.alike("a record that is late and one that is not", answer, self._end(self._ticket()))
        return notes.finding()

    def _forged(self) -> Finding:
        """A ticket with any bit changed is no ticket, whoever's it was."""
        notes = Notebook("forged-tickets")
        counted, fresh = self._ticket(), self._ticket()
        self._end(counted)
        raw = base64.urlsafe_b64decode(fresh)
        answers: list[SeenAnswer] = []
        for position in np.linspace(0, len(raw) - 1, _FLIPS).astype(int).tolist():
            changed = bytearray(raw)
            changed[position] ^= 1 << int(self._rng.integers(8))
            forged = base64.urlsafe_b64encode(bytes(changed)).decode()
            answers.append(self._end(forged, []))
            notes.refused(f"a ticket with byte {position} changed", answers[-1], "unknown-ticket")
        mixed = base64.urlsafe_b64encode(base64.urlsafe_b64decode(counted)[:16] + raw[16:]).decode()
        for wrong in (mixed, "", "A" * 64, fresh[:-4], "\u0000", "../../etc"):
            answers.append(self._end(wrong, []))
            notes.refused("a made-up ticket", answers[-1], "unknown-ticket")
        for other in answers[1:]:
            notes.alike("two forged tickets", answers[0], other)
        return notes.finding()

    def _unreadable(self) -> Finding:
        """Bad input is refused with its own reason, quotes nothing, and never breaks the service."""
        notes = Notebook("unreadable")
        ticket = self._ticket()
        step = {"state": 0, "action": 0, "reward": 0.0}
        wrong: list[Any] = [
            [{**step, word: value}]
            for word in ("state", "action", "next_state")
            for value in (_CANARY, -_CANARY, "x", None, 0.5)
        ]
        wrong += [[{**step, "reward": value}] for value in ("x", None, [_CANARY])]
        wrong += [[step] * (self._facts["horizon"] + 1), {"state": _CANARY}, "x", None, [[_CANARY]], [None]]
        bodies = [json.dumps({"ticket": ticket, "steps": steps}).encode() for steps in wrong]
        text = json.dumps({"ticket": ticket, "steps": [{**step, "reward": "R"}]})
        bodies += [text.replace('"R"', number).encode() for number in ("NaN", "Infinity", "1e999", "-1e999")]
        bodies += [b"", b"{", b"[" * 3_000, b"\xff\xfe", b'{"ticket":1}', b"null", text.encode("utf-16")]
        bodies.append(json.dumps({"ticket": ticket, "steps": [step], "user": str(_CANARY)}).encode())
        for body in bodies:
            seen = self._call("POST", "episodes", body)
            notes.refused(f"an episode of {len(body)} bytes that cannot be read", seen)
            notes.check(str(_CANARY).encode() not in seen.body, "a refusal quotes what was sent")
        for state, position in (
            (self._facts["states"], 0),
            (-1, 0),
            (0, self._facts["horizon"]),
            (0, -1),
            (_CANARY, 0),
        ):
            seen = self._call("POST", "actions", {"ticket": ticket, "state": state, "step": position})
            notes.refused("an action for a state or step that does not exist", seen)
            notes.check(str(_CANARY).encode() not in seen.body, "a refusal quotes what was sent")
        notes.check(self._end(ticket).status < 300, "after unreadable records, an honest one is not taken")
        return notes.finding()

    def _sizes(self) -> Finding:
        """Nothing larger than its limit is read."""
        notes = Notebook("sizes")
        ticket = self._ticket()
        padding = " " * (1 << 20)
        for what, content, limit in (
            ("actions", {"ticket": ticket, "state": 0, "step": 0}, 4_096),
            ("tickets", {"user": "somebody"}, 4_096),
            ("episodes", {"ticket": ticket, "steps": []}, 65_536),
        ):
            body = json.dumps(content).encode()
            long = body[:-1] + padding[: limit + 1 - len(body)].encode() + b"}"
            notes.refused(f"`{what}` of {len(long)} bytes", self._call("POST", what, long), "too-large")
        many = [{"ticket": ticket, "state": 0, "step": 0}] * 1_001
        notes.refused("a batch of 1,001", self._call("POST", "actions:batch", {"queries": many}))
        notes.refused("a user's id of 2,000 letters", self._call("POST", "tickets", {"user": "x" * 2_000}))
        return notes.finding()

    def _timing(self) -> Finding:
        """How long a record takes must not tell whether it was the first one."""
        from scipy.stats import mannwhitneyu

        notes = Notebook("timing")
        tickets = [self._ticket() for _ in range(_TIMED)]
        first, again = [], []
        for one, before in zip(tickets, [tickets[-1], *tickets], strict=False):  # in turns, so that load hits both
            first.append(self._end(one).seconds)
            if before is not tickets[-1]:
                again.append(self._end(before).seconds)
        chance = float(mannwhitneyu(first, again).pvalue)
        words = f"first records and repeated ones take other times (p = {chance:.1g})"
        notes.check(chance > _IMPLAUSIBLE, words)
        return notes.finding()
