"""`Client`: one person's device. Trajectories stay on it; each report is drawn once and kept before it is sent."""

import contextlib
import functools
import json
import math
import os
import sys
import warnings
from collections.abc import Callable

import numpy as np
from jaxtyping import Int64

from privrl.contracts.learner import AbstractLearner
from privrl.mdp.types import RecordForm, Trajectory
from privrl.privacy.accounting.certificate import Certificate
from privrl.privacy.noise.sources import Seeded, System
from privrl.privacy.store.errors import BurntError
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.privatizers import AbstractPrivatizer
from privrl.recipes.pairing import AnyWorld, BudgetArguments
from privrl.studies.keys import KeyLike, seeded_key
from privrl.studies.local.local_plans import local_pair, local_study
from privrl.studies.local.wire import Broadcast, Message, MessageError

_POOL = "epsilon"


class Client:
    """One person's device: reports once to a study (or for a fixed number of visits), with noise added on the device,
    across restarts.

    >>> study = {"world": "riverswim", "epsilon": 1}
    >>> server = privrl.Server("ldp-ucbvi", num_users=100, key=0, **study)
    >>> world = privrl.envs.make("riverswim")
    >>> people = world.sample(world.uniform_policy(), 1, jax.random.key(0))
    >>> record = jax.tree.map(lambda x: x[0], people)
    >>> client = privrl.Client("ldp-ucbvi", store="device.db", **study)
    >>> broadcast = server.broadcast()
    >>> message = client.report(record, broadcast)
    >>> client.report(record, broadcast).to_bytes() == message.to_bytes()  # drawn once
    True

    Arguments:
        learner, privatizer, world, epsilon, delta, rho: the same as the server's.
        store: where this device keeps its report, a file or a `ReleaseStore` for one person. Required for real
            people.
        cap: the largest sum of epsilon over all studies to which this device ever reports, by default that of one
            study. Without a cap, a server could invent one study after another. The cap is written when the store
            is created; pass the same value afterwards.
        study: the SHA-256 of the study's document, which the app ships: broadcasts of any other study are refused.
        max_episodes_per_unit: m, the number of visits of this person that are reported; their reports share
            epsilon. Unless epsilon is large, one report from a visit chosen at random learns more
            (`docs/guides/local.md`).
        key: seeded noise for simulations, which are remembered by this object alone; leave it out on real people.

    **Formal guarantee.** Per study (the hash of its document, in the ticket) and visit one report is drawn, for at
    most m visits: reserved in the store, drawn, kept, and only then returned. A repeated call returns the same
    bytes, whatever broadcast or trajectory is passed, and sending them again reveals nothing more. If the device
    stops between reserving and keeping, the report is lost and no second one is drawn. What one study learns from
    all reports of the device is bounded by its epsilon, which is charged with the first of them, because k of m
    reports with Gaussian noise reveal more than k/m of epsilon. A new study is a new budget, and epsilons add up
    over studies (deltas too), to at most `cap`. A store that is deleted, or an older copy of it, has forgotten what
    was reported.

    Raises:
        ValueError: learner and privatizer do not fit together, or `store` and `key` are both missing or both given.
        MessageError: a broadcast is refused, or nothing is left to spend; `reason` names why.
    """

    def __init__(
        self,
        learner: str | AbstractLearner,
        privatizer: AbstractPrivatizer | None = None,
        *,
        world: str | AnyWorld | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        store: ReleaseStore | str | os.PathLike[str] | None = None,
        cap: float | None = None,
        study: bytes | None = None,
        max_episodes_per_unit: int = 1,
        key: KeyLike | None = None,
    ) -> None:
        learner, privatizer = local_pair(learner, privatizer, world, BudgetArguments(epsilon, delta, rho))
        self._study, channels = local_study(learner, privatizer, max_episodes_per_unit)
        self._reports = {name: channel.reports() for name, channel in channels.items()}
        self._visits: set[int] = set()
        self._pinned = study
        self._source = System() if key is None else Seeded(seeded_key(key))
        if (store is None) == (key is None):
            raise ValueError(
                "Give a `store` on the device of a real person, so that one person reports once even if the device "
                "restarts; or a `key` in a simulation, which protects no one."
            )
        if key is None and privatizer.budget is None:
            raise ValueError("`epsilon` is infinite, which protects no one; give a `key` to simulate it.")
        if store is None:
            store = ReleaseStore.in_memory()
        self._store = store if isinstance(store, ReleaseStore) else ReleaseStore(store)
        most = self._epsilon if cap is None else min(cap, sys.float_info.max)
        self._store.open_study({"verb": "client"}, {_POOL: most})

    def report(self, trajectory: Trajectory, broadcast: Broadcast, visit: int = 0) -> Message:
        """Returns this person's message about one visit to this study, the same every time.

        Arguments:
            visit: the number of the visit, as the app counts them, from 0 to `max_episodes_per_unit` - 1.

        Raises `MessageError` if an earlier attempt was interrupted after it was reserved, or if the visit is one
        too many, and `StoreBudgetError` if the epsilon of this study would exceed the cap. Nothing leaves the
        device then.
        """
        times, study = self._study.participation.times, broadcast.ticket.study
        if type(visit) is not int or not 0 <= visit < times:  # there are as many names as visits, and no other
            raise MessageError(
                f"`visit` must be a whole number from 0 to {times - 1}, because a person reports {times} visits to "
                "this study. Nothing was drawn.",
                "spent",
            )
        if self._pinned not in (None, study):
            raise MessageError("The broadcast is of another study than this app was made for.", "other-study")
        name = f"report{f' {visit}' if visit else ''} to study {study.hex()}"
        kept = self._store.value(name)
        if kept is None:
            draw = self._prepared(self._readable(trajectory), broadcast)
            distribution = json.dumps([event.to_json() for event in self._study.ledger.events()]).encode()
            try:
                charge = self._charge(study, distribution)
                kept = self._store.release(
                    name, _POOL, charge, lambda: _integers(draw().to_bytes()), distribution=distribution
                )
            except BurntError as error:
                raise MessageError(
                    "This device has begun to report to this study and stopped before the report was kept. A second "
                    "draw would spend the budget again, so this person has no report in this study.",
                    "lost",
                ) from error
        self._visits.add(visit)
        return Message.from_bytes(_bytes(kept))

    def _charge(self, study: bytes, distribution: bytes) -> float:
        """The epsilon that a report is charged: that of the study, or 0 after the first of several reports.

        A device that has reported to the study under another number of visits reports nothing more to it.
        """
        times, budget = self._study.participation.times, f"budget of study {study.hex()}"
        several, one = self._store.distribution(budget), self._store.distribution(f"report to study {study.hex()}")
        if several is not None if times == 1 else several is None and one is not None:
            raise MessageError(
                "This device has reported to this study with another number of visits, and its budget is spent on "
                "these. Nothing was drawn.",
                "spent",
            )
        if times == 1:
            return self._epsilon
        with contextlib.suppress(BurntError):  # interrupted, but charged
            self._store.release(budget, _POOL, self._epsilon, lambda: np.zeros(1, np.int64), distribution=distribution)
        return 0.0

    def _readable(self, trajectory: Trajectory) -> Trajectory:
        """The record, or the empty one if it cannot be read, because whether a device reports must not depend on its
        record.
        """
        blank = Trajectory.empty(self._study.learner.horizon)
        record = RecordForm(blank).read(trajectory)
        if record is not None:
            return record
        warnings.warn(
            "The record does not have the form of a `Trajectory` of the horizon, so an empty one was reported. Later "
            "calls give the same report.",
            stacklevel=3,
        )
        return blank

    def _prepared(self, trajectory: Trajectory, broadcast: Broadcast) -> Callable[[], Message]:
        """Returns a function that draws the message, after computing everything that must precede the reservation."""
        number, study = broadcast.ticket.number, broadcast.ticket.study.hex()
        truths = {name: reports.truth(trajectory, broadcast.plan, number) for name, reports in self._reports.items()}
        # A simulation's randomness is decided by its key and the ticket alone, whatever the study is called.
        label = (number,) if isinstance(self._source, Seeded) else (study, number)

        def draw() -> Message:
            parts = (
                self._reports[name].randomise(truth, self._source.randomness((name, *label)))
                for name, truth in truths.items()
            )
            return Message(broadcast.ticket, tuple(parts))

        return draw

    @property
    def certificate(self) -> Certificate:
        """What all reports of this person to one study can reveal."""
        made = {name: (len(self._visits), reports.calibration) for name, reports in self._reports.items()}
        return self._study.certificate(self._source.origin, made=made)

    @functools.cached_property
    def _epsilon(self) -> float:
        """The epsilon of one study."""
        epsilon = self.certificate.epsilon
        return epsilon if math.isfinite(epsilon) else 0.0  # infinite in simulations only


def _integers(content: bytes) -> Int64[np.ndarray, " n"]:
    """Bytes in the form that a store keeps: their number, then 64-bit words."""
    padded = content + bytes(-len(content) % 8)
    return np.concatenate([[len(content)], np.frombuffer(padded, "<i8")]).astype(np.int64)


def _bytes(kept: Int64[np.ndarray, " n"]) -> bytes:
    return kept[1:].astype("<i8").tobytes()[: kept[0]]
