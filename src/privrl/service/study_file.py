"""Study files: what `privrl serve` is told about a study, in TOML. A recipe's name and numbers, never code.

```toml
kind = "central"            # or "local"
name = "river"
recipe = "dp-ucbvi"         # `privrl list recipes`
users = 10000
epsilon = 1.0
delta = 1e-6                # not for pure recipes
patience = 3600             # central: seconds that a record is waited for
store = "river.db"          # beside this file, or "postgresql:///river"

[world]                     # sizes and what is publicly known beforehand
states = 5
actions = 2
horizon = 20
rewards = [[0.005, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
```

Where nobody knows how many people will come, a central study has `open_ended = true` instead of `users`, or a table
of what is not as by default: `open_ended = { epoch = 5000, forget = 0.5 }` (`OpenEnded`). Instead of sizes, `[world]`
may have `env`, `seed` and `arguments`, as for `privrl run`. The first `privrl serve init` freezes all of this in the
store; limits, the audit log and who may ask for tickets can be changed later.
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
from privrl.envs.worlds_by_name import suggestion
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
    "name": "lower-case letters, digits and hyphens, at most 40, the first no hyphen",
    "devices": '"open" or "key"',
}
_S = TypeVar("_S", bound=msgspec.Struct)


class StudyFile(msgspec.Struct, frozen=True, kw_only=True):
    """A study as its file declares it. Relative files are beside it; `read` makes one.

    `valid` is how many seconds a ticket of a local study may be answered, `devices` whether devices need a key of their
    own (a page that anybody can open has no secrets: leave it open), `queue` how many people may wait for the writer.
    In a central study where people come back, `max_episodes_per_unit` of each person's visits count, in blocks that are
    at least `min_block_distance` apart. It has either a number of `users` or no known end, `open_ended`. In a local one
    so many visits are reported, with an equal share of epsilon each; the device counts them, nobody else can, and
    `users` is the number of reports.
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
        """Where the store is: a file, or an address."""
        return self.store if self.store.startswith(ADDRESSES) else str(self.path.parent / self.store)

    @property
    def people(self) -> int | OpenEnded:
        """How many people may take part, or how epochs follow each other where nobody knows."""
        if self.users is not None:
            return self.users
        return self.open_ended if isinstance(self.open_ended, OpenEnded) else OpenEnded()

    @property
    def counting(self) -> str:
        """What `users` is the number of: people, or reports where devices make several."""
        return "reports" if self.kind == "local" and self.max_episodes_per_unit > 1 else "people"

    @property
    def log_place(self) -> Path:
        """The audit log, outside the store."""
        return self.path.parent / (self.log or f"{self.path.stem}.audit.log")

    @property
    def keys_place(self) -> Path:
        """The file of keys."""
        return self.path.with_suffix(".keys")

    def chosen(self) -> Recipe:
        """The recipe, which must be of this kind."""
        recipe = get(self.recipe)
        if recipe.family != "online" or recipe.trust != self.kind:
            raise ValueError(
                f"`recipe` is {self.recipe!r}, and a {self.kind} study needs one for finite worlds that learns while "
                f"people take part, with trust {self.kind!r}. See `privrl list recipes`."
            )
        return recipe

    def learner(self) -> AbstractOnlineLearner:
        """The learner for the declared world."""
        made = self.chosen().learner(self.world.problem())
        assert isinstance(made, AbstractOnlineLearner)
        return made

    def ends(self) -> Int[np.ndarray, " B"]:
        """The public ends of the blocks."""
        people, learner = self.people, self.learner()
        return people.declared(learner)[0] if isinstance(people, OpenEnded) else learner.blocks(people)

    def privatizer(self) -> AbstractPrivatizer:
        """The privatizer of the declared budget."""
        return self.chosen().privatizer(epsilon=self.epsilon, delta=self.delta)


def read(path: Path) -> StudyFile:
    """The study of a file; every fault that it has is named in one error."""
    if not path.is_file():
        raise ValueError(
            f"There is no study file `{path}`. It is TOML, with `kind`, `name`, `recipe` and what follows."
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
    raise ValueError(f"`{path}` declares no study that can be served: " + "; ".join(faults) + ".")


def _entries(
    form: type[_S], given: Mapping[str, Any], before: str, faults: list[str], leave: tuple[str, ...] = ()
) -> dict[str, Any]:
    """What is given for the fields of a `Struct`; what does not fit is added to `faults`."""
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


def _unknown(given: Mapping[str, Any], known: Collection[str], before: str) -> list[str]:
    return [f"`{before}{key}` is unknown. {suggestion(key, known)[:-1]}" for key in given if key not in known]


def _check(file: StudyFile, faults: list[str]) -> None:
    """What entries say together."""
    if file.kind == "local" and file.open_ended:
        faults.append(
            "`open_ended` belongs to central studies; under local privacy the noise does not depend on how many people "
            "there are, so give a generous number of `users`"
        )
    elif file.users is None and not file.open_ended:
        faults.append("`users` is missing; where nobody knows how many people will come: `open_ended = true`")
    elif file.users is not None and file.open_ended:
        faults.append("`users` is a number of people, and `open_ended` says that there is none: leave out one of them")
    if file.kind == "central" and file.patience is None:
        faults.append("`patience` is missing: the longest stay, in seconds, that is waited for")
    if file.kind == "local" and file.patience is not None:
        faults.append("`patience` belongs to central studies; a ticket of a local one ends after `valid` seconds")
    if file.kind == "local" and file.min_block_distance:
        faults.append(
            "`min_block_distance` belongs to central studies; reports of a device share epsilon, however far apart"
        )
    _check_places(file, faults)
    before = len(faults)
    _attempt(file.chosen, faults)
    if len(faults) == before:
        _attempt(file.learner, faults)
        _attempt(file.privatizer, faults)
    if not faults:
        _attempt(file.ends, faults)


def _check_places(file: StudyFile, faults: list[str]) -> None:
    """Where its files are."""
    address = file.store.startswith(ADDRESSES)
    if "://" in file.store and not address:
        faults.append("`store` must be a file, or an address that begins with `postgresql://`")
        return
    places = [file.path, file.log_place, file.keys_place] + ([] if address else [Path(file.place)])
    if len({place.resolve() for place in places}) < len(places):
        faults.append(f"`store`, `log`, the keys `{file.keys_place.name}` and this file must be different files")
    missing = {str(place.parent) for place in places if not place.parent.is_dir()}
    faults += [f"there is no folder `{folder}` for `store` or `log`: make it first" for folder in sorted(missing)]


def _attempt(work: Callable[[], object], faults: list[str]) -> None:
    try:
        work()
    except ValueError as error:
        faults.append(str(error).rstrip("."))
