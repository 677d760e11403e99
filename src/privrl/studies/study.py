"""A study: from what a learner declares to what is certified. Every verb goes this way, and it is written here alone.

Declare the releases, check that the privatizer can serve them, calibrate the ledger, open the store; later, certify
what the ledger says. Nothing here sees a person.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TypedDict, cast

import numpy as np
from jaxtyping import Int, PRNGKeyArray

from privrl.contracts.learner import AbstractAnalysis, AbstractOfflineAnalysis, AbstractOnlineLearner
from privrl.contracts.release import Declared
from privrl.learners.trials.trial import Trial
from privrl.privacy.accounting.certificate import Certificate, Claimed, Relation, StudyRecord
from privrl.privacy.accounting.ledger import Ledger
from privrl.privacy.accounting.privatizer_settings import privatizer_settings
from privrl.privacy.continual.participation import ONCE, Participation
from privrl.privacy.noise.sources import Origin
from privrl.privacy.shared_budget import AnySharedBudget, describe_reservation, has_study_id, shared, study_id
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.channels import AbstractChannel
from privrl.privacy.trust.privatizers import AbstractPrivatizer, PairingError
from privrl.privacy.trust.shuffled import Batched
from privrl.studies.learner_settings import known_settings, settings_of
from privrl.studies.open_ended import OpenEnded

_RESERVED = "reserved in a shared budget"


class CountedRecords(TypedDict):
    """How much of one person counts, as a certificate states it."""

    records_per_unit: int | None
    block_distance: int
    messages_per_user: int | None


@dataclass
class Study:
    """A learner, a privatizer and the ledger between them.

    Attributes:
        declared: every release that can be made.
        ledger: their calibrated cost, and what was really released.
        unit: what one privacy unit is called.
        ends: the public ends of the blocks of an online study.
        participation: how often one person may take part in it.
        open_ended: where the number of people is not known, how epochs follow each other.
        opened: the UTC date on which the study was opened, fixed before any record is read.
        reserved: a sentence about the shared budget that pays for the study, if there is one.
    """

    learner: AbstractAnalysis
    privatizer: AbstractPrivatizer
    declared: tuple[Declared, ...]
    ledger: Ledger = field(init=False)
    unit: str = "user"
    ends: Int[np.ndarray, " B"] | None = None
    participation: Participation = ONCE
    open_ended: OpenEnded | None = None
    opened: str = field(init=False)
    reserved: str | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.privatizer.check(self.name, self.declared, self.participation)
        self.ledger = self.privatizer.calibrate(self.declared, self.participation)
        self.opened = datetime.now(UTC).date().isoformat()

    @property
    def name(self) -> str:
        """What the learner is called."""
        return type(self.learner).__name__

    @classmethod
    def offline(cls, learner: AbstractOfflineAnalysis, privatizer: AbstractPrivatizer, unit: str) -> "Study":
        """Of a data set at rest. Streamed releases are refused: there are no blocks of people."""
        declared = learner.declare()
        for d in declared:
            if d.access in ("running", "blocks"):
                raise PairingError(
                    f"`{type(learner).__name__}` declares `{d.name}` with `access={d.access!r}`, which needs people "
                    "who arrive in blocks. Use `access='rounds'` for a table."
                )
        return cls(learner, privatizer, declared, unit)

    @classmethod
    def online(
        cls,
        learner: AbstractAnalysis,
        privatizer: AbstractPrivatizer,
        num_users: int | OpenEnded,
        participation: Participation = ONCE,
        *,
        secret_returns: bool = False,
    ) -> "Study":
        """Of `num_users` people who take part one after another, in blocks whose ends are public; or of as many as
        come.

        If one person may take part several times (`participation`), `num_users` is the number of places. With
        `secret_returns`, returning people take no place and their number is secret: the learner reads the number of
        records off releases. A device's reports are public, so a local study has no secret returns.

        Neighbours replace one person: blocks are ranges of people, so without one of them another block would end
        elsewhere, and how many releases there are would tell. `adjacency="add-remove"` is refused.
        """
        if not isinstance(learner, AbstractOnlineLearner):
            raise PairingError(
                f"`{type(learner).__name__}` learns from a table, not while people take part. Use `privrl.fit`, or an "
                "online learner such as `UCBVI`."
            )
        if isinstance(learner, Trial):
            _check_trial(learner, privatizer, participation)
        if privatizer.adjacency != "replace-one" and privatizer.notion != "none":
            raise PairingError(
                f"`adjacency` is {privatizer.adjacency!r}, and people who take part one after another fill blocks by "
                "their number: without one of them the releases would come at other times, and perhaps one fewer. "
                "Use `adjacency='replace-one'`; the number of people is public there."
            )
        if secret_returns and participation.times > 1 and privatizer.notion == "central":
            learner = learner.with_returns(participation.times - 1)
        spec = num_users if isinstance(num_users, OpenEnded) else None
        if isinstance(num_users, OpenEnded):
            ends, declared = num_users.declared(learner)
        else:
            ends = learner.blocks(num_users)
            declared = learner.declare(len(ends))
        study = cls(learner, privatizer, declared, ends=ends, participation=participation, open_ended=spec)
        for d in declared:
            if isinstance(d, Batched) and np.diff(ends, prepend=0).min() < d.smallest:
                raise PairingError(
                    f"`{study.name}` promises blocks of at least {d.smallest} people and its schedule for {ends[-1]} "
                    "has smaller ones. Let more people take part, or lower the least size."
                )
        return study

    @classmethod
    def local(
        cls, learner: AbstractOnlineLearner, privatizer: AbstractPrivatizer, participation: Participation = ONCE
    ) -> "Study":
        """Of people who each send a message, or several: what is certified are those of one person."""
        return cls(learner, privatizer, learner.declare(participation.times), participation=participation)

    def channels(self) -> dict[str, AbstractChannel]:
        """The way of every declared statistic from people to the learner."""
        return {d.name: self.privatizer.channel(d, self.ledger) for d in self.declared}

    @property
    def neighbours(self) -> str:
        """The neighbouring relation as text, if it is not the replacement of one record."""
        often = self.participation
        if self.privatizer.notion == "local" and often.times > 1:
            return (
                f"one {self.unit} replaced by any other, with all of their reports (at most {often.times}, which share "
                "the budget); whether and when a report is sent is public"
            )
        return self.learner.neighbours or neighbours_of(often, self.unit)

    @property
    def relation(self) -> Relation:
        """What two neighbours differ by."""
        several = self.participation.times > 1
        if self.privatizer.notion == "local" and several:
            return "reports"
        if self.learner.neighbours:
            return "function"
        return "visits" if several else "record"

    def count_records(self, records_per_unit: int = 1) -> CountedRecords:
        """How much of one person counts, for the certificate; `records_per_unit` is that of a data set at rest."""
        often = self.participation
        if self.ends is not None:
            return {"records_per_unit": often.times, "block_distance": often.distance, "messages_per_user": None}
        if isinstance(self.learner, AbstractOnlineLearner):
            return {"records_per_unit": None, "block_distance": 0, "messages_per_user": often.times}
        records = None if self.relation == "function" else records_per_unit
        return {"records_per_unit": records, "block_distance": 0, "messages_per_user": None}

    @property
    def users(self) -> int | dict[str, object] | None:
        """How many people take part, or how it is decided; nothing where only one person's message is certified."""
        if self.open_ended is not None:
            return self.open_ended.to_json()
        return None if self.ends is None else int(self.ends[-1])

    @property
    def _open_note(self) -> tuple[str, ...]:
        if self.open_ended is None or self.ends is None:
            return ()
        return (self.open_ended.note(int(self.ends[-1]), self.participation.times),)

    def asked(self) -> list[str]:
        """The declared releases that answer new queries about people who have left."""
        return [d.name for d in self.declared if d.access == "rounds"]

    def open(
        self,
        store: ReleaseStore,
        verb: str,
        limits: Mapping[str, float],
        *,
        key: PRNGKeyArray | None = None,
        **facts: object,
    ) -> None:
        """Writes the study into a store, or checks that it is the one that was begun there.

        The learner with all its settings is part of it: another one might ask for less here and more there, and noise
        that was chosen for one share must not be used for another. So is the minor version of privrl, because another
        one may declare, calibrate or plan differently: it can neither continue a study nor serve it at the same time.
        """
        study = {
            "minor version of privrl": ".".join(version("privrl").split(".")[:2]),
            "verb": verb,
            "learner": settings_of(self.learner),
            "events": [event.to_json() for event in self.ledger.events()],
            "adjacency": self.privatizer.adjacency,
            "unit": self.unit,
            "simulation": key is not None,
            **({} if self.participation == ONCE else {"counted": self.count_records()}),
            **facts,
        }
        store.open_study(study, limits)
        self.opened = store.fact("opened", lambda: self.opened.encode()).decode()
        if store.has_fact(_RESERVED):
            self.reserved = store.fact(_RESERVED, bytes).decode()

    def reserve(
        self,
        budget: AnySharedBudget | None,
        verb: str,
        unit_column: str | None,
        key: PRNGKeyArray | None,
        store: ReleaseStore | None,
        called: str | None = None,
    ) -> None:
        """Reserves the cost of everything declared in a shared budget, before anything is asked of people's data. The
        budget lists the study as it is `called`.

        A study in a store reserves once, however often it is resumed. A study that was begun with a budget, and whose
        reservation was refused or interrupted, does not continue without one.
        """
        if budget is None:
            if store is not None and self.reserved is None and has_study_id(store):
                raise ValueError(
                    "The study in this store was begun with a shared budget and has not reserved its cost. Give "
                    "`budget`, or use a new store."
                )
            return
        if key is not None or self.privatizer.notion != "central" or self.relation == "function":
            raise ValueError(
                "`budget` pays for studies of real people by a trusted curator. Leave it out with a `key`, without "
                "privacy, under local privacy, and for a reward function."
            )
        paying = shared(budget)
        taken = paying.reserve(
            self.ledger.events(),
            unit_column or self.unit,
            called or f"{verb} with {self.name}",
            adjacency=self.privatizer.adjacency,
            study=None if store is None else study_id(store),
        )
        self.reserved = note = describe_reservation(taken.study, paying.terms)
        if store is not None:
            store.fact(_RESERVED, note.encode)

    def certificate(
        self,
        noise_source: Origin,
        *,
        records_per_unit: int = 1,
        made: Mapping[str, tuple[int, tuple[float, float] | None]] | None = None,
        notes: Sequence[str] = (),
    ) -> Certificate:
        """What everything declared can reveal. Read through the billboard lemma, a curator's releases to people who
        take part one after another are joint differential privacy.

        Arguments:
            noise_source: where the noise comes from.
            records_per_unit: how many records of one unit count in a data set at rest.
            made: for every streamed statistic, how many releases were made so far, and how their noise is calibrated.
            (A
                curator of a data set at rest writes its releases into the ledger one by one.)
        """
        for name, (count, calibration) in (made or {}).items():
            self.ledger.reconcile(name, count, calibration)
        joint = self.ends is not None and self.privatizer.notion == "central"
        study: StudyRecord = {
            "learner": known_settings(self.learner),
            "privatizer": privatizer_settings(self.privatizer),
            "users": self.users,
        }
        return Certificate.of(
            self.ledger,
            delta=self.privatizer.reported_delta,
            notion="joint" if joint else self.privatizer.notion,
            unit=self.unit,
            bounds=self.learner.bounds(),
            return_range=self.learner.return_range,
            noise_source=noise_source,
            version=version("privrl"),
            learner=self.name,
            relation=self.relation,
            neighbours=self.neighbours,
            **self.count_records(records_per_unit),
            claimed=cast(Claimed | None, self.privatizer.claimed),
            notes=(
                *notes,
                *self._open_note,
                *(() if self.reserved is None else (self.reserved,)),
                *self.privatizer.notes(self.ledger),
            ),
            study=study,
            opened=self.opened,
        )


def _check_trial(trial: Trial, privatizer: AbstractPrivatizer, participation: Participation) -> None:
    """Refuses a trial whose boundaries are for other noise, or in which a person has several outcomes."""
    if privatizer != trial.protocol.privatizer:
        raise PairingError(
            "The boundaries of a trial depend on the noise of its protocol. Use `protocol.privatizer`, and change "
            "`epsilon` and `delta` in the protocol."
        )
    if participation.times > 1:
        raise PairingError("A trial counts one outcome of each person. Leave out `max_episodes_per_unit`.")


def participation_of(max_episodes_per_unit: int, min_block_distance: int) -> Participation:
    """How often one person may take part, checked."""
    if max_episodes_per_unit < 1 or min_block_distance < 0:
        raise ValueError(
            f"`max_episodes_per_unit` is {max_episodes_per_unit} and `min_block_distance` {min_block_distance}; at "
            "least 1 episode of each person counts, and blocks are at least 0 apart."
        )
    if max_episodes_per_unit == 1 and min_block_distance > 0:
        raise ValueError(
            f"`min_block_distance` is {min_block_distance}, and `max_episodes_per_unit` is 1: there is nothing to keep "
            "apart. Leave it out."
        )
    return Participation(max_episodes_per_unit, min_block_distance)


def neighbours_of(participation: Participation, unit: str) -> str:
    """The neighbouring relation as text if people take part several times; empty if they take part once."""
    if participation.times == 1:
        return ""
    apart = f", at least {participation.distance} blocks apart" if participation.distance else ""
    return (
        f"one {unit} replaced by any other, with all of their counted episodes (at most {participation.times}{apart}), "
        f"whenever and however often either comes (the number of places is public)"
    )
