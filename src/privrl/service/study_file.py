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

Instead of sizes, `[world]` may have `env`, `seed` and `arguments`, as for `privrl run`. The first `privrl serve init`
freezes all of this in the store; limits, the audit log and who may ask for tickets can be changed later.
"""

import math
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import jax.numpy as jnp
import msgspec
import numpy as np
from msgspec import Meta

from privrl.contracts.learner import AbstractOnlineLearner
from privrl.envs.base import Env
from privrl.envs.registry import make, suggestion
from privrl.privacy.store.store import ADDRESSES
from privrl.privacy.trust.privatizers import AbstractPrivatizer
from privrl.recipes.recipe import Problem, Recipe
from privrl.recipes.registry import get

Kind = Literal["central", "local"]
_Size = Annotated[int, Meta(ge=1, le=1_000_000)]
_Positive = Annotated[float, Meta(gt=0)]
_MONTH = 30 * 86_400.0
_S = TypeVar("_S", bound=msgspec.Struct)


class DeclaredWorld(msgspec.Struct, frozen=True, kw_only=True):
    """`[world]`: sizes with what is publicly known, or the name of a simulated world to take them from.

    `rewards[s][a]`, or `rewards[h][s][a]`, are known mean rewards, `arrival_rewards[s]` known payments for entering a
    state, and episodes end in `terminal` states.
    """

    env: str | None = None
    seed: int = 0
    arguments: dict[str, str | int | float | bool] = {}
    states: _Size | None = None
    actions: _Size | None = None
    horizon: _Size | None = None
    rewards: list[Any] | None = None
    arrival_rewards: list[float] | None = None
    terminal: list[int] = []
    stationary: bool = True

    def problem(self) -> Problem:
        """What is public about the task."""
        sizes = (self.states, self.actions, self.horizon)
        if self.env is not None:
            known = (self.rewards, self.arrival_rewards)
            if sizes != (None, None, None) or known != (None, None) or self.terminal:
                raise ValueError("`world` has `env`, which says sizes and rewards: leave them out, or leave out `env`.")
            env = make(self.env, seed=self.seed, **self.arguments)
            if not isinstance(env, Env):
                raise ValueError(f"`world.env` is {self.env!r}; it must be a finite world in which nothing is hidden.")
            return Problem.of(env)
        if self.states is None or self.actions is None or self.horizon is None:
            raise ValueError(
                "`world` needs `states`, `actions` and `horizon`, or the name of a simulated world, `env`."
            )
        rewards = self._numbers("rewards", self.rewards, (2, 3), (self.states, self.actions))
        if rewards is not None and rewards.ndim == 2:
            rewards = rewards[None]
        if rewards is not None and len(rewards) not in (1, self.horizon):
            raise ValueError(f"`world.rewards` has {len(rewards)} steps; it must have one for all, or {self.horizon}.")
        arrival = self._numbers("arrival_rewards", self.arrival_rewards, (1,), (self.states,))
        if not all(0 <= state < self.states for state in self.terminal):
            raise ValueError(f"`world.terminal` has a state outside [0, {self.states}).")
        return Problem.of_table(
            self.states,
            self.actions,
            self.horizon,
            rewards=None if rewards is None else jnp.asarray(rewards),
            arrival_rewards=None if arrival is None else jnp.asarray(arrival),
            stationary=self.stationary,
            terminal=tuple(self.terminal),
        )

    @staticmethod
    def _numbers(word: str, given: Any, axes: tuple[int, ...], last: tuple[int, ...]) -> np.ndarray | None:
        if given is None:
            return None
        try:
            found = np.asarray(given, float)
        except (TypeError, ValueError):
            found = np.zeros(())
        if found.ndim not in axes or found.shape[-len(last) :] != last or not np.isfinite(found).all():
            raise ValueError(f"`world.{word}` must be finite numbers, the last axes of sizes {list(last)}.")
        return found


class StudyFile(msgspec.Struct, frozen=True, kw_only=True):
    """A study as its file declares it. Relative files are beside it; `read` makes one.

    `valid` is how many seconds a ticket of a local study may be answered, `devices` whether devices need a key of their
    own (a page that anybody can open has no secrets: leave it open), `queue` how many people may wait for the writer.
    In a central study where people come back, `max_episodes_per_unit` of each person's visits count, in blocks that are
    at least `min_block_distance` apart.
    """

    path: Path
    kind: Kind
    name: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,39}\Z")]
    recipe: str
    users: Annotated[int, Meta(ge=1, lt=2**53)]
    epsilon: _Positive
    store: str
    world: DeclaredWorld
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

    def privatizer(self) -> AbstractPrivatizer:
        """The privatizer of the declared budget."""
        return self.chosen().privatizer(epsilon=self.epsilon, delta=self.delta)


def read(path: Path) -> StudyFile:
    """The study of a file; every fault that it has is named in one error."""
    try:
        content = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"`{path}` is not TOML: {error}.") from error
    faults: list[str] = []
    given = dict(content)
    world = given.pop("world", {})
    if not isinstance(world, Mapping):
        faults.append("`world` must be a table, `[world]`")
        world = {}
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
    faults += [f"`{before}{key}` is unknown. {suggestion(key, fields)[:-1]}" for key in given if key not in fields]
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
            faults.append(f"`{before}{name}`: {error}")
    return found


def _check(file: StudyFile, faults: list[str]) -> None:
    """What entries say together."""
    if file.kind == "central" and file.patience is None:
        faults.append("`patience` is missing: the longest stay, in seconds, that is waited for")
    if file.kind == "local" and file.patience is not None:
        faults.append("`patience` belongs to central studies; a ticket of a local one ends after `valid` seconds")
    if file.kind == "local" and (file.max_episodes_per_unit, file.min_block_distance) != (1, 0):
        faults.append("in a local study every person reports once: leave out `max_episodes_per_unit`")
    before = len(faults)
    _attempt(file.chosen, faults)
    if len(faults) == before:
        _attempt(file.learner, faults)
        _attempt(file.privatizer, faults)


def _attempt(work: Callable[[], object], faults: list[str]) -> None:
    try:
        work()
    except ValueError as error:
        faults.append(str(error).rstrip("."))
