"""Study files declare a study for `privrl serve`, in TOML. They hold the name of a recipe and numbers, never code.

```toml
kind = "central"            # or "local"
name = "river"
recipe = "dp-ucbvi"         # `privrl list recipes`
users = 10000
epsilon = 1.0
delta = 1e-6                # not for pure recipes
patience = 3600             # central: seconds until a record must be posted
store = "river.db"          # relative to this file, or "postgresql:///river"

[world]                     # sizes, and what is publicly known
states = 5
actions = 2
horizon = 20
rewards = [[0.005, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
```

If the number of people is unknown, a central study has `open_ended = true` instead of `users`, or a table with settings
of `OpenEnded`: `open_ended = { epoch = 5000, forget = 0.5 }`. Instead of sizes, `[world]` may have `env`, `seed` and
`arguments`, as for `privrl run`. The first `privrl serve init` records the declaration in the store for good; you can
change `queue`, `log` and `devices` later.
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
from privrl.privacy.store.release_store import ADDRESSES
from privrl.privacy.trust.privatizers import AbstractPrivatizer
from privrl.recipes.all_recipes import get
from privrl.recipes.recipe import Recipe
from privrl.service.declared_world import DeclaredWorld
from privrl.studies.open_ended import OpenEnded

Kind = Literal["central", "local"]
_Positive = Annotated[float, Meta(gt=0)]
_MONTH = 30 * 86_400.0
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
        valid: seconds for which a ticket of a local study can be used.
        devices: whether devices need a key (`key`) or not (`open`). A public web page has no secrets, so use `open`.
        queue: largest number of people waiting for the writer.
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
    valid: _Positive = _MONTH
    devices: Literal["open", "key"] = "open"
    queue: Annotated[int, Meta(ge=1_000, le=1_000_000)] = 4_096
    log: str | None = None

    @property
    def place(self) -> str:
        """The path or address of the store."""
        return self.store if self.store.startswith(ADDRESSES) else str(self.path.parent / self.store)

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
    def keys_place(self) -> Path:
        """The path of the key file."""
        return self.path.with_suffix(".keys")

    def find_recipe(self) -> Recipe:
        """Find the recipe, and check that it suits this kind of study."""
        recipe = get(self.recipe)
        if recipe.family != "online" or recipe.trust != self.kind:
            raise ValueError(
                f"`recipe` is {self.recipe!r}. A {self.kind} study needs an online recipe for finite worlds with trust "
                f"{self.kind!r}; see `privrl list recipes`."
            )
        return recipe

    def learner(self) -> AbstractOnlineLearner:
        """Make the learner for the declared world."""
        made = self.find_recipe().learner(self.world.problem())
        assert isinstance(made, AbstractOnlineLearner)
        return made

    def ends(self) -> Int[np.ndarray, " B"]:
        """Compute the public ends of the blocks."""
        people, learner = self.people, self.learner()
        return people.declared(learner)[0] if isinstance(people, OpenEnded) else learner.blocks(people)

    def privatizer(self) -> AbstractPrivatizer:
        """Make the privatizer for the declared budget."""
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
    faults: list[str] = []
    given = dict(content)
    world = given.pop("world", {})
    if not isinstance(world, Mapping):
        faults.append("`world` must be a table, `[world]`")
        world = {}
    epochs = given.get("open_ended")
    if isinstance(epochs, Mapping):
        faults += _unknown(epochs, [one.name for one in dataclasses.fields(OpenEnded)], "open_ended.")
    entries = _entries(StudyFile, given, "", faults, leave=("path", "world"))
    declared = DeclaredWorld(**_entries(DeclaredWorld, world, "world.", faults))
    if not faults:
        found = StudyFile(**entries, world=declared, path=path.absolute())
        _check(found, faults)
        if not faults:
            return found
    raise ValueError(f"The study in `{path}` cannot be served: " + "; ".join(faults) + ".")


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
    _check_places(file, faults)
    before = len(faults)
    _attempt(file.find_recipe, faults)
    if len(faults) == before:
        _attempt(file.learner, faults)
        _attempt(file.privatizer, faults)
    if not faults:
        _attempt(file.ends, faults)


def _check_places(file: StudyFile, faults: list[str]) -> None:
    """Check the paths of the store, the log and the keys."""
    address = file.store.startswith(ADDRESSES)
    if "://" in file.store and not address:
        faults.append("`store` must be a file, or an address that starts with `postgresql://`")
        return
    places = [file.path, file.log_place, file.keys_place] + ([] if address else [Path(file.place)])
    if len({place.resolve() for place in places}) < len(places):
        faults.append(f"`store`, `log`, the keys `{file.keys_place.name}` and this file must be different files")
    missing = {str(place.parent) for place in places if not place.parent.is_dir()}
    faults += [f"the folder `{folder}` of `store` or `log` does not exist. Make it first" for folder in sorted(missing)]


def _attempt(work: Callable[[], object], faults: list[str]) -> None:
    try:
        work()
    except ValueError as error:
        faults.append(str(error).rstrip("."))
