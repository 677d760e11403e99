"""A cell of a figure: one recipe in one world with one budget and one size, repeated over seeds.

A cell is data. It is run by `privrl.run` or `privrl.fit`, exactly as on the command line, and it can print the command
that repeats it. Its seed follows from the figure's seed and its own settings. Cells therefore do not depend on each
other, on their order, or on the number of processes.
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
from jaxtyping import Array, Float, Int, PyTree

from privrl.envs.base import Env
from privrl.envs.lq_worlds import LQEnv
from privrl.envs.worlds_by_name import make
from privrl.recipes.all_recipes import get
from privrl.studies.offline.fitting import fit
from privrl.studies.open_ended import OpenEnded
from privrl.studies.simulation.sampled_tables import sampled
from privrl.studies.simulation.simulating import run

Measure = Literal["regret", "suboptimality"]
_POINTS = 50


@dataclass(frozen=True)
class Measured:
    """The outcome of a cell.

    Attributes:
        measure: `regret` is cumulative over people, `suboptimality` is the loss of one episode of the current policy.
        at: the number of people (or samples) after which each column was measured.
        values: one row for each repetition, exact in expectation over the world.
        yardstick: the same quantity for the uninformed policy (uniform; zero for linear systems).
        levels: loss per person of policies that never learn, the uninformed one first; and `optimal`, the largest
            value.
        certified: epsilon by exact accounting, infinity without privacy; `None` if there is no certificate.
        seconds: the running time.
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
        """The values over the yardstick: 0 is optimal, 1 is as bad as the uninformed policy."""
        return self.values / self.yardstick

    @property
    def final(self) -> Float[np.ndarray, " seeds"]:
        """The values at the end."""
        return self.values[:, -1]

    @property
    def final_share(self) -> Float[np.ndarray, " seeds"]:
        """The values at the end over the yardstick at the end."""
        return self.shares[:, -1]

    def until(self, people: float) -> Float[np.ndarray, " seeds"]:
        """Return the values after this many people, interpolated between measurements."""
        return np.array([_interpolate(people, self.at, row) for row in self.values])


def _interpolate(
    people: float | Int[np.ndarray, " m"], at: Int[np.ndarray, " n"], total: Float[np.ndarray, " n"]
) -> Float[np.ndarray, "*m"]:
    """Return a total, which starts at 0, after these numbers of people."""
    return np.asarray(np.interp(people, np.concatenate([[0], at]), np.concatenate([[0.0], total])))


@dataclass(frozen=True)
class Cell:
    """One recipe, world, budget and size.

    Arguments:
        recipe: the name of a recipe, or a name that `how` understands.
        env, world, env_seed: the name of the world, its arguments and its instance.
        people: the number of episodes of an online run, or in an offline table.
        seeds: the number of independent repetitions.
        epsilon, delta, rho: the requested budget.
        how: runs the cell from a seed; a function of a module, so that it can be sent to another process. Its name is
            one of the settings, so renaming it changes the seed of the cell.
        few: the number of people of the tiny version.
        name: the label, if recipe and budget are not enough.
        epoch, forget: people per epoch and the factor between epochs, for a study without a known end (see
            `OpenEnded`).
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
        """The parts of the budget that were given."""
        given = {"epsilon": self.epsilon, "delta": self.delta, "rho": self.rho}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def label(self) -> str:
        """The recipe and its budget, for readers."""
        if self.name:
            return self.name
        spent = f", rho {self.rho:g}" if self.rho is not None else ""
        return f"{self.recipe}, epsilon {self.epsilon:g}" if self.epsilon is not None else f"{self.recipe}{spent}"

    @property
    def settings(self) -> dict[str, object]:
        """Everything on which the numbers depend, except the seed and the code."""
        apart = ("how", "few", "name", "epoch", "forget")
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in apart}
        named = {"world": dict(self.world), "how": f"{self.how.__module__}.{self.how.__name__}"}
        return values | named | self._epochs

    @property
    def _epochs(self) -> dict[str, float]:
        """The settings of epochs, if there are any."""
        return {} if self.epoch is None else {"epoch": self.epoch, "forget": self.forget}

    @property
    def slug(self) -> str:
        """A name for a file."""
        parts = [self.recipe, self.env, *(f"{k}{v}" for k, v in self.world), f"i{self.env_seed}", f"k{self.people}"]
        parts += [f"{name}{value:g}" for name, value in (self.budget | self._epochs).items()]
        return re.sub(r"[^a-z0-9.+-]+", "-", "_".join(parts).lower().replace("@", "-at-"))

    def seed(self, base: int) -> int:
        """Return the cell's own seed, for a figure with the seed `base`."""
        return (base + zlib.crc32(json.dumps(self.settings, sort_keys=True).encode())) % 2**31

    def command(self, base: int) -> str:
        """Return the command that repeats this cell with the same numbers; empty if it does not run a recipe."""
        if self.how is not by_recipe:
            return ""
        offline = get(self.recipe).family == "offline"
        words = ["privrl", *(["fit", f"env:{self.env}", "--recipe"] if offline else ["run"]), self.recipe]
        words += [] if offline else ["--env", self.env]
        words += [f"--env-arg {name}={value}" for name, value in self.world] + [f"--env-seed {self.env_seed}"]
        words += [f"--episodes {self.people}"] + [f"--{name} {value!r}" for name, value in self.budget.items()]
        words += ["--open-ended"] * bool(self._epochs) + [f"--{name} {value}" for name, value in self._epochs.items()]
        return " ".join([*words, f"--seeds {self.seeds}", f"--seed {self.seed(base)}"])

    def shrink(self) -> "Cell":
        """Return a tiny version that only shows that the cell works: few people, two repetitions, three steps.

        The number of people is the same for most cells, so that their programs are compiled once.
        """
        short = self.how is by_recipe and get(self.recipe).family != "control"
        world = dict(self.world) | ({"horizon": 3} if short else {})
        return replace(self, people=self.few, seeds=2, world=tuple(world.items()))


def by_recipe(cell: Cell, seed: int) -> Measured:
    """Run a cell with `privrl.run` or `privrl.fit`, depending on its recipe."""
    started = time.perf_counter()
    recipe = get(cell.recipe)
    env: Any = make(cell.env, seed=cell.env_seed, **dict(cell.world))
    learner = recipe.build(env)
    privatizer = recipe.privatizer(epsilon=cell.epsilon, delta=cell.delta, rho=cell.rho)
    drifts = isinstance(env, Env) and env.drift is not None
    known = env.fixed_policies()
    levels = {
        name: env.total_regret(policy, cell.people) / cell.people if drifts else float(_loss(env, policy))
        for name, policy in known.items()
    }
    uninformed = next(iter(levels.values()))
    levels["optimal"] = float(env.optimal_value)
    key = jax.random.key(seed)
    if recipe.family != "offline":
        spec = False if cell.epoch is None else OpenEnded(epoch=cell.epoch, forget=cell.forget)
        simulated = run(env, learner, privatizer, episodes=cell.people, seeds=cell.seeds, key=key, open_ended=spec)
        at = _checkpoints(cell.people)
        yardstick = uninformed * at
        if drifts:  # in a drifting world the loss of the uninformed policy changes over time
            yardstick = np.array([env.total_regret(next(iter(known.values())), int(people)) for people in at])
        total = np.cumsum(simulated.block_regret * simulated.block_sizes, axis=1)
        values = np.stack([_interpolate(at, simulated.block_ends, row) for row in total])  # exact inside blocks
        certified = simulated.certificate.epsilon
        return Measured("regret", at, values, yardstick, levels, certified, time.perf_counter() - started)
    losses = []
    for repetition in jax.random.split(key, cell.seeds):
        data_key, noise_key = jax.random.split(repetition)
        result = fit(sampled(env, cell.people, data_key), learner, privatizer, key=noise_key, unit="user")
        losses.append([float(_loss(env, result.policy))])
    at, yardstick, certified = np.array([cell.people]), np.array([uninformed]), result.certificate.epsilon
    seconds = time.perf_counter() - started
    return Measured("suboptimality", at, np.array(losses), yardstick, levels, certified, seconds)


def _checkpoints(people: int) -> Int[np.ndarray, " n"]:
    """Return the times at which a curve is recorded: evenly spaced on a linear and on a logarithmic axis."""
    even = np.ceil(people * np.arange(1, _POINTS + 1) / _POINTS)
    return np.unique(np.concatenate([even, np.ceil(np.geomspace(1, people, _POINTS))]).astype(int))


@eqx.filter_jit
def _loss(env: Env | LQEnv, policy: PyTree) -> Float[Array, ""]:
    return env.regret(policy)
