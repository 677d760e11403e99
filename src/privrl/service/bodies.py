"""What is sent and answered, as types: requests are decoded by them, and the OpenAPI document is made of them.

Numbers that may be above 2^53 travel as decimal strings, because JavaScript would round them.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

BATCH = 1_000  # the most people in one request
TicketText = Annotated[str, Meta(max_length=800, description="What `tickets` answered; pass it back as it is.")]
PersonText = Annotated[str, Meta(min_length=1, max_length=1_000)]


class ArrivalBody(msgspec.Struct, forbid_unknown_fields=True):
    """A person arrives. `user` is their id; 12 and "12" are one person.

    Where people come back, `visit` names this visit, such as a session: the same one has the same ticket.
    """

    user: PersonText | int
    visit: Annotated[str, Meta(max_length=100)] | Annotated[int, Meta(ge=-(2**53), le=2**53)] = ""


class TicketAnswer(msgspec.Struct):
    """A person's place: the same for the same id, and their only one.

    `number` is how many arrived before, `plan` the plan that they act on for their whole stay, and a record that is
    posted until `deadline` (seconds since 1970) is in time.
    """

    ticket: TicketText
    number: str
    plan: int
    deadline: float | None


class StepBody(msgspec.Struct, forbid_unknown_fields=True):
    """A person stands in a state at a step, both counted from 0."""

    ticket: TicketText
    state: int
    step: int


class StepBodies(msgspec.Struct, forbid_unknown_fields=True):
    """Several people at once."""

    queries: Annotated[list[StepBody], Meta(min_length=1, max_length=BATCH)]


class ActionAnswer(msgspec.Struct):
    """The action to take, drawn from the plan of the ticket."""

    action: int
    plan: int


class ActionAnswers(msgspec.Struct):
    """The answers, in the order of the queries."""

    answers: list[ActionAnswer]


class RecordedStep(msgspec.Struct, forbid_unknown_fields=True):
    """One step of an episode. A next state that is left out is the state of the step after."""

    state: int
    action: int
    reward: float
    next_state: int | msgspec.UnsetType = msgspec.UNSET


class EpisodeBody(msgspec.Struct, forbid_unknown_fields=True):
    """What happened to the person of a ticket, from the first step to the last."""

    ticket: TicketText
    steps: list[RecordedStep]


class EpisodeBodies(msgspec.Struct, forbid_unknown_fields=True):
    """Several people's records; all are looked at before any is counted."""

    episodes: Annotated[list[EpisodeBody], Meta(min_length=1, max_length=BATCH)]


class PolicyAnswer(msgspec.Struct):
    """The newest plan: `probabilities[step][state][action]`."""

    plan: int
    probabilities: list[list[list[float]]]


class SignedTicketAnswer(msgspec.Struct):
    """Leave to report once, for whoever has it: number and expiry (seconds since 1970) as decimal strings."""

    number: str
    plan: int
    expires: str
    mac: str


class ActionsAnswer(msgspec.Struct):
    """A plan: `actions[step][state]`. The same bytes for ever."""

    actions: list[list[int]]


class StudyDocument(msgspec.Struct):
    """The public document of a local study; the SHA-256 of its bytes is the study's identity.

    `reports` is how many one device makes, where that is more than one; the epsilon of a part is that of one report,
    `users` the number of reports in all.
    """

    format: int
    nonce: str
    learner: str
    users: int
    horizon: int
    parts: list[dict[str, Any]]
    reports: int | msgspec.UnsetType = msgspec.UNSET


class StudySummary(msgspec.Struct):
    """What an app must know of a central study: sizes, and the budget.

    `users` is null where the study has no known end; no more than `places` people take part. So many visits of one
    person count, in blocks that are at least so far apart.
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
    """What everything that was and will be released can reveal about one person; see `privrl certify`."""

    certificate: dict[str, Any]


class HealthAnswer(msgspec.Struct):
    """The state of every study."""

    studies: dict[str, str]
