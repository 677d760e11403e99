"""The types of request and response bodies. They decode requests and generate the OpenAPI document.

Numbers that may exceed 2^53 travel as decimal strings, because JavaScript would round them.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

BATCH = 1_000  # largest number of people in one request
TicketText = Annotated[str, Meta(max_length=800, description="As returned by `tickets`; pass it back unchanged.")]
PersonText = Annotated[str, Meta(min_length=1, max_length=1_000)]


class ArrivalBody(msgspec.Struct, forbid_unknown_fields=True):
    """A person arrives. `user` is their id; 12 and "12" are the same person.

    If people return, `visit` names this visit, for example a session. The same visit gets the same ticket.
    """

    user: PersonText | int
    visit: Annotated[str, Meta(max_length=100)] | Annotated[int, Meta(ge=-(2**53), le=2**53)] = ""


class TicketAnswer(msgspec.Struct):
    """A person's only place in the study. The same id always gets the same ticket.

    `number` is the number of people who arrived before, and `plan` is the plan for the whole episode. A record must be
    posted before `deadline` (seconds since 1970) to be counted.
    """

    ticket: TicketText
    number: str
    plan: int
    deadline: float | None


class StepBody(msgspec.Struct, forbid_unknown_fields=True):
    """A person's state at a step; both count from 0."""

    ticket: TicketText
    state: int
    step: int


class StepBodies(msgspec.Struct, forbid_unknown_fields=True):
    """The queries of several people."""

    queries: Annotated[list[StepBody], Meta(min_length=1, max_length=BATCH)]


class ActionAnswer(msgspec.Struct):
    """The action, drawn from the plan of the ticket."""

    action: int
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


class PolicyAnswer(msgspec.Struct):
    """The newest plan: `probabilities[step][state][action]`."""

    plan: int
    probabilities: list[list[list[float]]]


class SignedTicketAnswer(msgspec.Struct):
    """Permission to report once. Number and expiry (seconds since 1970) are decimal strings."""

    number: str
    plan: int
    expires: str
    mac: str


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


class StudySummary(msgspec.Struct):
    """The sizes and the budget of a central study.

    `users` is null if the study is open-ended; at most `places` people take part. At most `max_episodes_per_unit`
    visits of one person count, in blocks at least `min_block_distance` apart.
    """

    kind: str
    users: int | None
    places: int
    epsilon: str
    delta: str | None
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
    """The state of every study."""

    studies: dict[str, str]
