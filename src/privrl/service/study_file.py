"""Study files declare a study for `privrl serve`, in TOML. They hold the name of a recipe and numbers, never code.

```toml
kind = "central"            # or "local"
name = "river"
recipe = "auto"             # chooses by public facts; central studies only. `privrl list recipes` shows all
users = 10000
epsilon = 1.0
delta = 1e-6                # not for pure recipes
patience = 3600             # central: seconds until a record must be posted
store = "river.db"          # relative to this file, or "postgresql:///river"
unit = "patient_id"         # what the ids of people identify; "user" unless given

[world]                     # sizes, and what is publicly known
states = 5
actions = 2
horizon = 20
rewards = [[0.005, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
```

If the number of people is unknown, a central study has `open_ended = true` instead of `users`, or a table with settings
of `OpenEnded`: `open_ended = { epoch = 5000, forget = 0.5 }`. Instead of sizes, `[world]` may have `env`, `seed` and
`arguments`, as for `privrl run`. The first `privrl serve init` records the declaration in the store for good; you can
change `queue`, `log`, `devices`, `ticket_rate` and `max_clock_jump` later.

The protocol of a pilot (`learners/trials/protocol.py`) is a study file too. It may have `unit`, and a table `[serve]`
with `store`, `log`, `queue` and `max_clock_jump`, which are not part of the protocol; the store is by default a file
next to it.
"""

import dataclasses
import math
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
from jaxtyping import Int
from msgspec import Meta

from privrl.contracts.learner import AbstractOnlineLearner
from privrl.envs.worlds_by_name import suggest
from privrl.learners.trials.protocol import SERVE, UNIT, Protocol
from privrl.learners.trials.trial import Trial
from privrl.privacy.store.release_store import ADDRESSES
from privrl.privacy.trust.privatizers import AbstractPrivatizer
from privrl.recipes.all_recipes import get
from privrl.recipes.recipe import Recipe
from privrl.service.access import StoredKeys, is_protocol, pilot_store, place_of_store
from privrl.service.declared_world import DeclaredWorld
from privrl.studies.open_ended import OpenEnded

Kind = Literal["central", "local", "pilot"]
PILOT: Kind = "pilot"
_Positive = Annotated[float, Meta(gt=0)]
_MONTH = 30 * 86_400.0
_USUAL_DELTA = 1e-6
_ALLOWED = {
    "kind": '"central" or "local"',
    "name": "at most 40 lower-case letters, digits and hyphens, not starting with a hyphen",
    "devices": '"open" or "key"',
}
_S = TypeVar("_S", bound=msgspec.Struct)


class StudyFile(msgspec.Struct, frozen=True, kw_only=True):
    """A study as its file declares it; `read_study_file` makes one. Paths are relative to the file.

    Attributes:
        users, open_ended: number of people; or no known end, in a central study. In a local study whose devices report
            several visits, `users` is the number of reports.
        max_episodes_per_unit: visits of one person that count, in blocks at least `min_block_distance` apart. In a
        local
            study, visits that a device reports, each with an equal share of epsilon; only the device can count them.
        patience: seconds until a record of a central study must be posted.
        plan_delay: with 1, a plan of a central study takes effect one block later and is computed meanwhile.
        valid: seconds for which a ticket of a local study can be used.
        devices: whether devices need a key (`key`) or not (`open`). A public web page has no secrets, so use `open`.
        unit: what the ids of people identify, for certificate and shared budget.
        queue: largest number of people waiting for the writer.
        ticket_rate: largest number of tickets per second and process in a local study, over ten seconds. It is public.
        max_clock_jump: largest number of seconds by which the clock may be ahead of the latest arrival at start.
        protocol: of a pilot, which has no recipe and no world.
    """

    path: Path
    kind: Kind
    name: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,39}\Z")]
    recipe: str
    epsilon: _Positive
    store: str
    world: DeclaredWorld
    users: Annotated[int, Meta(ge=1, lt=2**53)] | None = None
    open_ended: bool | OpenEnded = False
    delta: Annotated[float, Meta(gt=0, lt=1)] | None = None
    patience: _Positive | None = None
    max_episodes_per_unit: Annotated[int, Meta(ge=1)] = 1
    min_block_distance: Annotated[int, Meta(ge=0)] = 0
    plan_delay: Annotated[int, Meta(ge=0, le=1)] = 0
    valid: _Positive = _MONTH
    devices: Literal["open", "key"] = "open"
    queue: Annotated[int, Meta(ge=1_000, le=1_000_000)] = 4_096
    max_clock_jump: _Positive = _MONTH
    ticket_rate: _Positive = 1_000.0
    log: str | None = None
    unit: Annotated[str, Meta(min_length=1, max_length=100)] = "user"
    protocol: Protocol | None = None

    @property
    def place(self) -> str:
        """The path or address of the store."""
        return place_of_store(self.path, self.store)

    @property
    def people(self) -> int | OpenEnded:
        """The number of people, or the epochs of an open-ended study."""
        if self.users is not None:
            return self.users
        return self.open_ended if isinstance(self.open_ended, OpenEnded) else OpenEnded()

    @property
    def counting(self) -> str:
        """What `users` counts: people, or reports if devices make several."""
        return "reports" if self.kind == "local" and self.max_episodes_per_unit > 1 else "people"

    @property
    def log_place(self) -> Path:
        """The path of the audit log."""
        return self.path.parent / (self.log or f"{self.path.stem}.audit.log")

    @property
    def keys(self) -> StoredKeys:
        """The keys, which are in the store."""
        return StoredKeys(self.place)

    @property
    def uses_rewards(self) -> bool:
        """Whether the study learns from the rewards in records. Reports of devices and pilots have none."""
        if self.kind != "central":
            return False
        problem = self.world.problem()
        return problem.rewards is None and problem.arrival_rewards is None

    def find_recipe(self) -> Recipe:
        """Find the recipe, and check that it suits this kind of study."""
        recipe = get("auto-online" if self.recipe == "auto" else self.recipe)
        if recipe.family != "online" or recipe.trust != self.kind:
            raise ValueError(
                f"`recipe` is {self.recipe!r}. A {self.kind} study needs an online recipe for finite worlds with trust "
                f"{self.kind!r}; see `privrl list recipes`."
            )
        return recipe

    def learner(self) -> AbstractOnlineLearner:
        """Make the learner for the declared world, or the trial of a pilot."""
        if self.protocol is not None:
            return Trial(self.protocol)
        made = self.find_recipe().learner(self.world.problem())
        assert isinstance(made, AbstractOnlineLearner)
        return made

    def ends(self) -> Int[np.ndarray, " B"]:
        """Compute the public ends of the blocks."""
        people, learner = self.people, self.learner()
        return people.declared(learner)[0] if isinstance(people, OpenEnded) else learner.blocks(people)

    def privatizer(self) -> AbstractPrivatizer:
        """Make the privatizer for the declared budget."""
        if self.protocol is not None:
            return self.protocol.privatizer
        return self.find_recipe().privatizer(epsilon=self.epsilon, delta=self.delta)


def read_study_file(path: Path) -> StudyFile:
    """Read a study file.

    Raises:
        ValueError: names every fault of the file.
    """
    if not path.is_file():
        raise ValueError(
            f"There is no study file `{path}`. Write one in TOML; the guide to the service shows the entries."
        )
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"`{path}` is not TOML: {error}.") from error
    if is_protocol(content):
        return _read_pilot(path, content)
    faults: list[str] = []
    given = dict(content)
    world = given.pop("world", {})
    if not isinstance(world, Mapping):
        faults.append("`world` must be a table, `[world]`")
        world = {}
    epochs = given.get("open_ended")
    if isinstance(epochs, Mapping):
        faults += _unknown(epochs, [one.name for one in dataclasses.fields(OpenEnded)], "open_ended.")
    entries = _entries(StudyFile, given, "", faults, leave=("path", "world", "protocol"))
    declared = DeclaredWorld(**_entries(DeclaredWorld, world, "world.", faults))
    if not faults:
        found = StudyFile(**entries, world=declared, path=path.absolute())
        _check(found, faults)
        if not faults:
            return found
    raise ValueError(f"The study in `{path}` cannot be served: " + "; ".join(faults) + ".")


class _Service(msgspec.Struct, frozen=True, kw_only=True):
    """`unit` and `[serve]` of a protocol file: whom a pilot protects, and how it is served."""

    store: str | None = None
    queue: Annotated[int, Meta(ge=1_000, le=1_000_000)] = 4_096
    max_clock_jump: _Positive = _MONTH
    log: str | None = None
    unit: Annotated[str, Meta(min_length=1, max_length=100)] = "user"


def _read_pilot(path: Path, content: Mapping[str, Any]) -> StudyFile:
    """Read the protocol of a pilot as a study."""
    protocol = Protocol.from_json({name: value for name, value in content.items() if name not in (SERVE, UNIT)})
    faults: list[str] = []
    given = content.get(SERVE, {})
    if not isinstance(given, Mapping):
        raise ValueError(f"The pilot in `{path}` cannot be served: `{SERVE}` must be a table, `[{SERVE}]`.")
    if UNIT in given and given[UNIT] != content.get(UNIT, given[UNIT]):
        faults.append(f"`{UNIT}` is given twice, with different values. Keep the one before the first table")
    unit = _entries(_Service, {UNIT: content[UNIT]} if UNIT in content else {}, "", faults)
    service = _Service(**{**_entries(_Service, given, f"{SERVE}.", faults), **unit})
    if not faults:
        file = StudyFile(
            path=path.absolute(),
            kind=PILOT,
            name=protocol.name,
            recipe=PILOT,
            epsilon=protocol.epsilon,
            delta=protocol.delta,
            store=service.store or pilot_store(path),
            world=DeclaredWorld(),
            users=protocol.people,
            patience=protocol.patience,
            queue=service.queue,
            max_clock_jump=service.max_clock_jump,
            log=service.log,
            unit=service.unit,
            protocol=protocol,
        )
        _check_places(file, faults)
        if not faults:
            return file
    raise ValueError(f"The pilot in `{path}` cannot be served: " + "; ".join(faults) + ".")


def _entries(
    form: type[_S], given: Mapping[str, object], before: str, faults: list[str], leave: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Convert the entries of a table to the fields of a `Struct`, and append what does not fit to `faults`."""
    fields = {one.name: one for one in msgspec.structs.fields(form) if one.name not in leave}
    faults += _unknown(given, fields, before)
    found = {}
    for name, one in fields.items():
        if name not in given:
            if one.required:
                faults.append(f"`{before}{name}` is missing")
            continue
        try:
            found[name] = msgspec.convert(given[name], one.type)
            if isinstance(found[name], float) and not math.isfinite(found[name]):
                faults.append(f"`{before}{name}` must be finite")
        except msgspec.ValidationError as error:
            words = f"must be {_ALLOWED[name]}" if name in _ALLOWED else str(error).rstrip(".")
            faults.append(f"`{before}{name}`: {words}")
    return found


def _unknown(given: Mapping[str, object], known: Collection[str], before: str) -> list[str]:
    return [f"`{before}{key}` is unknown. {suggest(key, known)[:-1]}" for key in given if key not in known]


def _check(file: StudyFile, faults: list[str]) -> None:
    """Check entries against each other."""
    if file.kind == PILOT:
        faults.append("a pilot is declared by its protocol. Write one with `privrl pilot init`")
        return
    if file.kind == "local" and file.open_ended:
        faults.append(
            "`open_ended` belongs to central studies. Under local privacy the noise does not depend on the number of "
            "people, so give a generous number of `users`"
        )
    elif file.users is None and not file.open_ended:
        faults.append("`users` is missing. If the number of people is unknown, give `open_ended = true`")
    elif file.users is not None and file.open_ended:
        faults.append("`users` and `open_ended` exclude each other. Remove one of them")
    if file.kind == "central" and file.patience is None:
        faults.append("`patience` is missing. Give the seconds until a record must be posted")
    if file.kind == "local" and file.patience is not None:
        faults.append("`patience` belongs to central studies. A ticket of a local study expires after `valid` seconds")
    if file.kind == "local" and file.min_block_distance:
        faults.append(
            "`min_block_distance` belongs to central studies. In a local study, the reports of a device share epsilon"
        )
    if file.kind == "local" and file.unit != "user":
        faults.append("`unit` belongs to central studies. A local study protects the user of a device")
    _check_places(file, faults)
    before = len(faults)
    _attempt(file.find_recipe, faults)
    if len(faults) == before:
        _attempt(file.learner, faults)
        _attempt(lambda: _make_privatizer(file), faults)
    if not faults:
        _attempt(file.ends, faults)


def _make_privatizer(file: StudyFile) -> None:
    """Make the privatizer; if only a delta is missing, name that entry."""
    try:
        file.privatizer()
    except ValueError as error:
        if file.delta is not None or _fails(msgspec.structs.replace(file, delta=_USUAL_DELTA).privatizer):
            raise
        raise ValueError(f"`{file.path.name}` lacks `delta`: add `delta = 1e-6`") from error


def _fails(work: Callable[[], object]) -> bool:
    faults: list[str] = []
    _attempt(work, faults)
    return bool(faults)


def _check_places(file: StudyFile, faults: list[str]) -> None:
    """Check the paths of the store and the log."""
    address = file.store.startswith(ADDRESSES)
    if "://" in file.store and not address:
        faults.append("`store` must be a file, or an address that starts with `postgresql://`")
        return
    places = [file.path, file.log_place] + ([] if address else [Path(file.place)])
    if len({place.resolve() for place in places}) < len(places):
        faults.append("`store`, `log` and this file must be different files")
    missing = {str(place.parent) for place in places if not place.parent.is_dir()}
    faults += [f"the folder `{folder}` of `store` or `log` does not exist. Make it first" for folder in sorted(missing)]


def _attempt(work: Callable[[], object], faults: list[str]) -> None:
    try:
        work()
    except ValueError as error:
        faults.append(str(error).rstrip("."))
