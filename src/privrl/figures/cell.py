"""A cell of a figure: one recipe in one world with one budget and one size, repeated over seeds.

A cell is data. It goes through the public verbs (`privrl.run`, `privrl.fit`) exactly as the command line would, and it
knows the command that repeats it. Its seed follows from the figure's seed and its own settings, so cells are
independent of each other, of their order and of how many processes share them.
"""

import json
import re
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int

from privrl.envs.base import Env
from privrl.envs.lq_worlds import LQEnv
from privrl.envs.worlds_by_name import make
from privrl.recipes.all_recipes import get
from privrl.studies.offline.fit import fit
from privrl.studies.open_ended import OpenEnded
from privrl.studies.simulation.run import run
from privrl.studies.simulation.sampled_tables import sampled

Measure = Literal["regret", "suboptimality"]
_POINTS = 50


@dataclass(frozen=True)
class Measured:
    """What a cell found.

    Attributes:
        measure: `regret` is cumulative over people, `suboptimality` the loss of one episode of the policy at the time.
        at: after how many people (or samples) each column was measured.
        values: one row per repetition, exact in expectation over the world.
        yardstick: the same quantity for the policy that knows nothing (uniform; zero for linear systems).
        levels: loss per person of policies that never learn, the first of which knows nothing, and `optimal`, the
            largest value.
        certified: epsilon by exact accounting, infinity without privacy; None where nothing is certified.
    """

    measure: Measure
    at: Int[np.ndarray, " n"]
    values: Float[np.ndarray, "seeds n"]
    yardstick: Float[np.ndarray, " n"]
    levels: Mapping[str, float]
    certified: float | None
    seconds: float

    @property
    def shares(self) -> Float[np.ndarray, "seeds n"]:
        """The values over the yardstick: 0 is optimal, 1 is knowing nothing."""
        return self.values / self.yardstick

    @property
    def final(self) -> Float[np.ndarray, " seeds"]:
        """The values at the end."""
        return self.values[:, -1]

    @property
    def final_share(self) -> Float[np.ndarray, " seeds"]:
        """The values at the end, over the yardstick's."""
        return self.shares[:, -1]

    def until(self, people: float) -> Float[np.ndarray, " seeds"]:
        """The values after that many people; between two measurements they are interpolated."""
        return np.array([_interpolated(people, self.at, row) for row in self.values])


def _interpolated(people: Any, at: Int[np.ndarray, " n"], total: Float[np.ndarray, " n"]) -> Any:
    """A total that starts at 0, after so many people."""
    return np.interp(people, np.concatenate([[0], at]), np.concatenate([[0.0], total]))


@dataclass(frozen=True)
class Cell:
    """One recipe, world, budget and size.

    Arguments:
        recipe: a name from the registry of recipes, or what `how` knows.
        env, world, env_seed: the world, its arguments and its instance.
        people: episodes of an online run, or of an offline table.
        seeds: independent repetitions.
        epsilon, delta, rho: the budget that is asked for.
        how: runs the cell from a seed; a function of a module, so that it can be sent to another process.
        few: people of the tiny version.
        name: what it is called where recipe and budget do not say it.
        epoch, forget: of a study without a known end, whose epochs are so many people each (see `OpenEnded`).
    """

    recipe: str
    env: str
    people: int
    seeds: int
    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None
    world: tuple[tuple[str, int | float | str], ...] = ()
    env_seed: int = 0
    how: Callable[["Cell", int], Measured] = field(default_factory=lambda: by_recipe)
    few: int = 20
    name: str = ""
    epoch: int | None = None
    forget: float = 1.0

    @property
    def budget(self) -> dict[str, float]:
        given = {"epsilon": self.epsilon, "delta": self.delta, "rho": self.rho}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def label(self) -> str:
        """The recipe and its budget, as a reader would say it."""
        if self.name:
            return self.name
        spent = f", rho {self.rho:g}" if self.rho is not None else ""
        return f"{self.recipe}, epsilon {self.epsilon:g}" if self.epsilon is not None else f"{self.recipe}{spent}"

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that the numbers depend on, but the seed and the code."""
        apart = ("how", "few", "name", "epoch", "forget")
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in apart}
        named = {"world": dict(self.world), "how": f"{self.how.__module__}.{self.how.__name__}"}
        return values | named | self._epochs

    @property
    def _epochs(self) -> dict[str, float]:
        """How epochs follow each other, where there are any."""
        return {} if self.epoch is None else {"epoch": self.epoch, "forget": self.forget}

    @property
    def slug(self) -> str:
        """A name for a file."""
        parts = [self.recipe, self.env, *(f"{k}{v}" for k, v in self.world), f"i{self.env_seed}", f"k{self.people}"]
        parts += [f"{name}{value:g}" for name, value in (self.budget | self._epochs).items()]
        return re.sub(r"[^a-z0-9.+-]+", "-", "_".join(parts).lower().replace("@", "-at-"))

    def seed(self, base: int) -> int:
        """The cell's own seed, in a figure whose seed is `base`."""
        return (base + zlib.crc32(json.dumps(self.settings, sort_keys=True).encode())) % 2**31

    def command(self, base: int) -> str:
        """What repeats this cell on the command line, number by number; nothing where no recipe is run."""
        if self.how is not by_recipe:
            return ""
        offline = get(self.recipe).family == "offline"
        words = ["privrl", *(["fit", f"env:{self.env}", "--recipe"] if offline else ["run"]), self.recipe]
        words += [] if offline else ["--env", self.env]
        words += [f"--env-arg {name}={value}" for name, value in self.world] + [f"--env-seed {self.env_seed}"]
        words += [f"--episodes {self.people}"] + [f"--{name} {value!r}" for name, value in self.budget.items()]
        words += ["--open-ended"] * bool(self._epochs) + [f"--{name} {value}" for name, value in self._epochs.items()]
        return " ".join([*words, f"--seeds {self.seeds}", f"--seed {self.seed(base)}"])

    def tiny(self) -> "Cell":
        """The same at a size that shows only that it works: few people (as many everywhere, so that they compile once),
        two repetitions, three steps."""
        short = self.how is by_recipe and get(self.recipe).family != "control"
        world = dict(self.world) | ({"horizon": 3} if short else {})
        return replace(self, people=self.few, seeds=2, world=tuple(world.items()))


def by_recipe(cell: Cell, seed: int) -> Measured:
    """Runs a cell through the verb that its recipe is for."""
    started = time.perf_counter()
    recipe, env = get(cell.recipe), make(cell.env, seed=cell.env_seed, **dict(cell.world))
    learner = recipe.build(env)
    privatizer = recipe.privatizer(epsilon=cell.epsilon, delta=cell.delta, rho=cell.rho)
    drifts = isinstance(env, Env) and env.drift is not None
    known = env.never_learning()
    levels = {
        name: env.regret_of(policy, cell.people) / cell.people if drifts else float(_loss(env, policy))
        for name, policy in known.items()
    }
    nothing = next(iter(levels.values()))
    levels["optimal"] = float(env.optimal_value)
    key = jax.random.key(seed)
    if recipe.family != "offline":
        spec = False if cell.epoch is None else OpenEnded(epoch=cell.epoch, forget=cell.forget)
        simulated = run(env, learner, privatizer, episodes=cell.people, seeds=cell.seeds, key=key, open_ended=spec)
        at = _checkpoints(cell.people)
        yardstick = nothing * at
        if drifts:  # in a world that drifts, knowing nothing costs more at some times than at others
            yardstick = np.array([env.regret_of(next(iter(known.values())), int(people)) for people in at])
        total = np.cumsum(simulated.block_regret * simulated.block_sizes, axis=1)
        values = np.stack([_interpolated(at, simulated.block_ends, row) for row in total])  # exact inside blocks
        certified = simulated.certificate.epsilon
        return Measured("regret", at, values, yardstick, levels, certified, time.perf_counter() - started)
    losses = []
    for repetition in jax.random.split(key, cell.seeds):
        data_key, noise_key = jax.random.split(repetition)
        result = fit(sampled(env, cell.people, data_key), learner, privatizer, key=noise_key, unit="user")
        losses.append([float(_loss(env, result.policy))])
    at, yardstick, certified = np.array([cell.people]), np.array([nothing]), result.certificate.epsilon
    seconds = time.perf_counter() - started
    return Measured("suboptimality", at, np.array(losses), yardstick, levels, certified, seconds)


def _checkpoints(people: int) -> Int[np.ndarray, " n"]:
    """Times at which a curve is kept: evenly, and evenly on a logarithmic axis."""
    even = np.ceil(people * np.arange(1, _POINTS + 1) / _POINTS)
    return np.unique(np.concatenate([even, np.ceil(np.geomspace(1, people, _POINTS))]).astype(int))


@eqx.filter_jit
def _loss(env: Env | LQEnv, policy: Any) -> Float[Array, ""]:
    return env.regret(policy)
