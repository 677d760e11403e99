"""The types of request and response bodies. They decode requests and generate the OpenAPI document.

Numbers that may exceed 2^53 travel as decimal strings, because JavaScript would round them. Times are ISO 8601, in UTC.
"""

import functools
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

BATCH = 1_000  # largest number of people in one request
TicketText = Annotated[str, Meta(max_length=800, description="As returned by `tickets`; pass it back unchanged.")]
PersonText = Annotated[str, Meta(min_length=1, max_length=1_000)]


_LAST_SECOND = 253_402_300_799  # of the year 9999


@functools.lru_cache(maxsize=64)
def write_time(seconds: float | None) -> str | None:
    """Write a time, in seconds since 1970, as `2026-01-31T12:00:00Z`; fractions of a second are left out."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(min(int(seconds), _LAST_SECOND), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class ArrivalBody(msgspec.Struct, forbid_unknown_fields=True):
    """A person arrives. `user` is their id; 12 and "12" are the same person.

    If people return, `visit` names this visit, for example a session. The same visit gets the same ticket. In a pilot
    with subgroups, `groups` names the person's group in every partition; it is public.
    """

    user: PersonText | int
    visit: Annotated[str, Meta(max_length=100)] | Annotated[int, Meta(ge=-(2**53), le=2**53)] = ""
    groups: Annotated[dict[str, str], Meta(max_length=20)] = {}


class TicketAnswer(msgspec.Struct):
    """A person's only place in the study. The same id always gets the same ticket.

    `number` is the number of people who arrived before, and `plan` is the plan for the whole episode. A record must be
    posted before `deadline` to be counted; null if no record of this person counts. In a pilot, `arm` is what the
    person gets, for good.
    """

    ticket: TicketText
    number: str
    plan: int
    deadline: str | None
    arm: str | msgspec.UnsetType = msgspec.UNSET


class StepBody(msgspec.Struct, forbid_unknown_fields=True):
    """A person's state at a step; both count from 0.

    Without a ticket, for example because the study is full, the action comes from the plan in force, and the person
    does not take part. A pilot answers without a ticket once it has ended.
    """

    state: int
    step: int
    ticket: TicketText = ""


class StepBodies(msgspec.Struct, forbid_unknown_fields=True):
    """The queries of several people."""

    queries: Annotated[list[StepBody], Meta(min_length=1, max_length=BATCH)]


class ActionAnswer(msgspec.Struct):
    """The action, drawn from the plan of the ticket. In a pilot it is null if the decision is left to the clinician."""

    action: int | None
    plan: int


class ActionAnswers(msgspec.Struct):
    """The actions, in the order of the queries."""

    answers: list[ActionAnswer]


class RecordedStep(msgspec.Struct, forbid_unknown_fields=True):
    """One step of an episode. `next_state` defaults to the state of the following step."""

    state: int
    action: int
    reward: float
    next_state: int | msgspec.UnsetType = msgspec.UNSET


class EpisodeBody(msgspec.Struct, forbid_unknown_fields=True):
    """The whole episode of the person of a ticket."""

    ticket: TicketText
    steps: list[RecordedStep]


class EpisodeBodies(msgspec.Struct, forbid_unknown_fields=True):
    """The episodes of several people. All are checked before any is counted."""

    episodes: Annotated[list[EpisodeBody], Meta(min_length=1, max_length=BATCH)]


class OutcomeBody(msgspec.Struct, forbid_unknown_fields=True):
    """The outcomes of the person of a ticket, by name. One that is left out is missing."""

    ticket: TicketText
    outcomes: Annotated[dict[str, float], Meta(max_length=20)]


class OutcomeBodies(msgspec.Struct, forbid_unknown_fields=True):
    """The outcomes of several people. All are checked before any is counted."""

    records: Annotated[list[OutcomeBody], Meta(min_length=1, max_length=BATCH)]


class PilotAnswer(msgspec.Struct):
    """A pilot: its protocol, whose SHA-256 the certificate names, and what every look has shown so far.

    `serving` is the arm that every new person gets after the end; null while the trial goes on.
    """

    kind: str
    format: str
    protocol: dict[str, Any]
    sha256: str
    looks: list[dict[str, Any]]
    verdict: str
    serving: str | None


class PolicyAnswer(msgspec.Struct):
    """The newest plan: `probabilities[step][state][action]`."""

    plan: int
    probabilities: list[list[list[float]]]


class SignedTicketAnswer(msgspec.Struct):
    """Permission to report once, before `deadline`.

    A report contains `number`, `plan`, `expires` (the deadline in seconds since 1970) and `mac` as they are here, and
    the first three are signed. Number and expiry are decimal strings.
    """

    number: str
    plan: int
    expires: str
    mac: str
    deadline: str | None


class ActionsAnswer(msgspec.Struct):
    """A plan: `actions[step][state]`. Its bytes never change."""

    actions: list[list[int]]


class StudyDocument(msgspec.Struct):
    """The public document of a local study. The SHA-256 of its bytes identifies the study.

    `reports` is the number of reports that one device makes, if it exceeds one. The epsilon of a part is that of one
    report, and `users` is the number of reports in all.
    """

    format: int
    nonce: str
    learner: str
    users: int
    horizon: int
    parts: list[dict[str, Any]]
    reports: int | msgspec.UnsetType = msgspec.UNSET


class PurgeBody(msgspec.Struct, forbid_unknown_fields=True):
    """The name of the study to purge, which confirms the request."""

    study: str


class ListedStudy(msgspec.Struct):
    """A study of this service. `uses_rewards` is false if it ignores the rewards in records, because they are known."""

    name: str
    kind: str
    state: str
    recipe: str
    epsilon: float
    delta: float | None
    uses_rewards: bool


class StudyList(msgspec.Struct):
    """All studies of this service."""

    studies: list[ListedStudy]


class StudySummary(msgspec.Struct):
    """The sizes and the budget of a central study.

    `uses_rewards` is false if the study ignores the rewards in records, because they are publicly known.
    `users` is null if the study is open-ended; at most `places` people take part. At most `max_episodes_per_unit`
    visits of one person count, in blocks at least `min_block_distance` apart.
    """

    kind: str
    users: int | None
    places: int
    epsilon: float
    delta: float | None
    uses_rewards: bool
    states: int
    actions: int
    horizon: int
    patience: float
    max_episodes_per_unit: int
    min_block_distance: int


class CertificateAnswer(msgspec.Struct):
    """A bound on what all releases, past and future, can reveal about one person; see `privrl certify`."""

    certificate: dict[str, Any]


class HealthAnswer(msgspec.Struct):
    """The state of studies, and what those that cannot be served are missing, by name."""

    studies: dict[str, str]
    missing: dict[str, str]


_TICKET, _NUMBERS = "p3Q1...", {"number": "4711", "plan": 3, "deadline": "2026-01-31T12:00:00Z"}
_RECORD = {"state": 0, "action": 1, "reward": 0.5, "next_state": 2}
_OUTCOMES = {"ticket": _TICKET, "outcomes": {"survival": 1.0}}
_BUDGET = {"kind": "central", "epsilon": 1.0, "delta": 1e-6, "uses_rewards": False}
_LISTED = {"name": "river", "state": "ready", "recipe": "auto", **_BUDGET}
EXAMPLES: dict[type[msgspec.Struct], dict[str, Any]] = {
    ArrivalBody: {"user": "customer 4711"},
    TicketAnswer: {"ticket": _TICKET, **_NUMBERS},
    StepBody: {"ticket": _TICKET, "state": 0, "step": 0},
    StepBodies: {"queries": [{"ticket": _TICKET, "state": 0, "step": 0}]},
    ActionAnswer: {"action": 1, "plan": 3},
    ActionAnswers: {"answers": [{"action": 1, "plan": 3}]},
    EpisodeBody: {"ticket": _TICKET, "steps": [_RECORD]},
    EpisodeBodies: {"episodes": [{"ticket": _TICKET, "steps": [_RECORD]}]},
    OutcomeBody: _OUTCOMES,
    OutcomeBodies: {"records": [_OUTCOMES]},
    PilotAnswer: {
        "kind": "pilot",
        "format": "privrl pilot, 1",
        "protocol": {"name": "sepsis", "people": 2000},  # and everything else that it states
        "sha256": "9d3c" + 60 * "0",
        "looks": [],
        "verdict": "No look has been made yet.",
        "serving": None,
    },
    PolicyAnswer: {"plan": 3, "probabilities": [[[0.5, 0.5], [0.0, 1.0]]]},
    SignedTicketAnswer: {"expires": "1769860800", "mac": "e471fc6fd7ec50fab98c1b4235996885", **_NUMBERS},
    ActionsAnswer: {"actions": [[0, 1], [1, 1]]},
    PurgeBody: {"study": "river"},
    ListedStudy: _LISTED,
    StudyList: {"studies": [_LISTED]},
    StudySummary: {
        "users": 200,
        "places": 200,
        "states": 3,
        "actions": 2,
        "horizon": 6,
        "patience": 20.0,
        "max_episodes_per_unit": 1,
        "min_block_distance": 0,
        **_BUDGET,
    },
    HealthAnswer: {"studies": {"river": "ready", "lake": "failed"}, "missing": {"lake": "The store cannot be used."}},
}
"""An example of some types, for the OpenAPI document."""
