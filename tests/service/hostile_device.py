"""A local study over HTTP as a hostile device sees it: can a report count twice, without a ticket, or out of range?

What devices reveal is bounded on the devices, whatever a service does; here the service is attacked: its sums, its
tickets, and what it says about itself.
"""

import dataclasses
import json
import math
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from service.answers import Caller, Notebook, SeenAnswer

from privrl.audit.findings import Finding
from privrl.studies.local.document import identity_of
from privrl.studies.local.wire import Message, SignedTicket

_TICKETS = 24
_SAMPLED = 48  # bytes of a report that are changed, one at a time


class HostileDevice:
    """Attacks one local study; `rng` chooses what is changed where."""

    def __init__(self, call: Caller, rng: np.random.Generator) -> None:
        self._call, self._rng = call, rng
        self._document = call("GET").body
        self._content: dict[str, Any] = json.loads(self._document)

    def attacks(self) -> tuple[Finding, ...]:
        """All of them; together they ask for some thirty tickets and count a handful of reports."""
        return (
            self._public_facts(),
            self._tickets(),
            self._replay(),
            self._forged(),
            self._damaged(),
            self._out_of_range(),
            self._sizes(),
        )

    # ---------------------------------------------------------------------------------------------- honest requests

    def _ticket(self) -> SignedTicket:
        seen = self._call("POST", "tickets")
        content = seen.json()
        if seen.status != 200 or not isinstance(content, dict):
            raise ValueError(f"The study gives out no tickets ({seen.status} {seen.reason}); attack one that is open.")
        mac = bytes.fromhex(content["mac"])
        return SignedTicket(
            identity_of(self._document), int(content["number"]), int(content["plan"]), int(content["expires"]), mac
        )

    def _parts(self) -> tuple[np.ndarray, ...]:
        """A report that a device could send: so many different symbols of each part, in order."""
        found = []
        for part in self._content["parts"]:
            drawn = self._rng.choice(part["symbols"], part["size"], replace=False)
            found.append(np.sort(drawn).astype(np.int64))
        return tuple(found)

    def _report(self, ticket: SignedTicket, parts: tuple[np.ndarray, ...] | None = None) -> bytes:
        return Message(ticket, self._parts() if parts is None else parts).to_bytes()

    def _send(self, content: bytes) -> SeenAnswer:
        return self._call("POST", "reports", content)

    def _still_free(self, notes: Notebook, ticket: SignedTicket, what: str) -> None:
        """That a ticket was not used up, and nothing was counted under it, by what was refused before."""
        status = self._send(self._report(ticket)).status
        notes.check(status == 201, f"after {what} were refused, the honest report is answered {status}, not 201")

    # -------------------------------------------------------------------------------------------------- the attacks

    def _public_facts(self) -> Finding:
        """The document, plans and certificate say one thing, for ever."""
        notes = Notebook("public-facts")
        for what in ("", "plans/0", "certificate"):
            notes.alike(
                f"two requests for `{what or 'the document'}`", self._call("GET", what), self._call("GET", what)
            )
        certificate = self._call("GET", "certificate").json()["certificate"]
        asked = math.fsum(float.fromhex(part["epsilon"]) for part in self._content["parts"])
        asked *= self._content.get("reports", 1)
        fine = certificate["notion"] == "local" and asked <= certificate["epsilon"] * (1 + 1e-9)
        notes.check(fine, f"devices are asked for epsilon {asked:g} and the certificate says {certificate['epsilon']}")
        newest = self._ticket().plan
        notes.refused("a plan that is not out", self._call("GET", f"plans/{newest + 1_000}"), "unknown-plan")
        for wrong in ("plans/-1", "plans/0x0", "plans/%30%00", "episodes", "actions"):
            seen = self._call("POST" if wrong in ("episodes", "actions") else "GET", wrong, None, key="")
            notes.refused(f"`{wrong}`", seen)
        for place in ("/metrics", "/operator/", "/operator/studies"):
            notes.refused(f"the operator's `{place}` on the devices' port", self._call("GET", place), "not-found")
        return notes.finding()

    def _tickets(self) -> Finding:
        """No number twice, and nothing in one ticket about another."""
        notes = Notebook("tickets")
        tickets = [self._ticket() for _ in range(_TICKETS)]
        notes.check(len({one.number for one in tickets}) == _TICKETS, "a number was handed out twice")
        notes.check(len({one.mac for one in tickets}) == _TICKETS, "two tickets have one mac")
        return notes.finding()

    def _replay(self) -> Finding:
        """The same report again is known, and another one under its ticket is refused."""
        notes = Notebook("replay")
        ticket = self._ticket()
        report = self._report(ticket)
        first = self._send(report)
        notes.check(first.status == 201, f"an honest report is answered {first.status} {first.reason}, not 201")
        for _ in range(3):
            again = self._send(report)
            notes.check(again.status == 200, f"a report that was counted is answered {again.status} when sent again")
        while (other := self._report(ticket)) == report:
            pass
        for _ in range(2):
            notes.refused("a second, other report under one ticket", self._send(other), "conflict")
        notes.check(
            self._send(report).status == 200, "after another report was refused, the first is not known any more"
        )
        return notes.finding()

    def _forged(self) -> Finding:
        """Nobody can make up a ticket, prolong one, or move it to another number, plan or study."""
        notes = Notebook("forged-tickets")
        ticket = self._ticket()
        for forged, what in self._forgeries(ticket):
            notes.refused(f"a ticket with {what}", self._send(self._report(forged)), "forged", "other-study")
        self._still_free(notes, ticket, "forged tickets")
        return notes.finding()

    def _forgeries(self, ticket: SignedTicket) -> Iterator[tuple[SignedTicket, str]]:
        change = dataclasses.replace
        for byte in range(len(ticket.mac)):
            flipped = bytearray(ticket.mac)
            flipped[byte] ^= 1 << int(self._rng.integers(8))
            yield change(ticket, mac=bytes(flipped)), "a bit of its mac changed"
        yield change(ticket, mac=bytes(16)), "an empty mac"
        for number in (ticket.number + 1, max(0, ticket.number - 1), 2**62):
            yield change(ticket, number=number), "another number"
        yield change(ticket, plan=ticket.plan + 1), "another plan"
        for expires in (ticket.expires + 86_400, 2**62, 1):
            yield change(ticket, expires=expires), "another expiry"
        other = bytearray(ticket.study)
        other[0] ^= 1
        yield change(ticket, study=bytes(other)), "another study"

    def _damaged(self) -> Finding:
        """A report with any byte changed is refused, also where its checksum was computed again."""
        notes = Notebook("damaged")
        ticket = self._ticket()
        report = self._report(ticket)
        for position in np.linspace(0, len(report) - 1, _SAMPLED).astype(int).tolist():
            changed = bytearray(report)
            changed[position] ^= 1 << int(self._rng.integers(8))
            notes.refused(f"a report with byte {position} changed", self._send(bytes(changed)))
        self._still_free(notes, ticket, "damaged reports")
        return notes.finding()

    def _out_of_range(self) -> Finding:
        """What a device could not have drawn is not added up."""
        notes = Notebook("out-of-range")
        ticket = self._ticket()
        honest = self._parts()
        first, symbols = honest[0], self._content["parts"][0]["symbols"]
        wrong = {
            "a symbol beyond the last": np.sort(np.r_[first[1:], symbols]),
            "a symbol below 0": np.sort(np.r_[first[1:], -1]),
            "a huge symbol": np.sort(np.r_[first[1:], 2**62]),
            "the smallest whole number": np.r_[np.iinfo(np.int64).min, first[1:]],
            "one symbol too few": first[:-1] if len(first) > 1 else np.array([first[0], first[0]]),
            "one symbol too many": np.r_[first, first[-1]],
            "two axes": first[None],
            "fractions": first + 0.5,
        }
        if len(first) > 1:
            wrong["one symbol twice"] = np.sort(np.r_[first[:-1], first[0]])
            wrong["symbols out of order"] = first[::-1].copy()
        for what, part in wrong.items():
            if part.dtype.kind == "i":
                part = part.astype(np.int64)
            notes.refused(f"a report with {what}", self._send(self._report(ticket, (part, *honest[1:]))))
        notes.refused("a report with a part twice", self._send(self._report(ticket, (first, *honest))))
        self._still_free(notes, ticket, "reports out of range")
        return notes.finding()

    def _sizes(self) -> Finding:
        """A report has one length; nothing longer is read."""
        notes = Notebook("sizes")
        ticket = self._ticket()
        report = self._report(ticket)
        for content, what in (
            (report[:-1], "a byte missing"),
            (report[: len(report) // 2], "its second half missing"),
            (report + b"\0", "a byte more"),
            (report * 2, "itself twice"),
            (report + bytes(1 << 20), "a megabyte more"),
            (struct.pack("<4sH", b"prvm", 3), "its start alone"),
            (b"{}", "JSON"),
        ):
            notes.refused(f"a report with {what}", self._send(content))
        notes.refused("an empty report", self._call("POST", "reports"))
        self._still_free(notes, ticket, "reports of other sizes")
        return notes.finding()
