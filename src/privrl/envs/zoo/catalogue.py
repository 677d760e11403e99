"""The zoo: offline worlds of different kinds with known values, in two separate lists.

Constants of learners may be chosen on the worlds of `CHOOSING`. Those of `REPORTED` are only reported: no setting is
chosen by looking at them. Both lists have worlds of every kind. They share generators (with other seeds and sizes) and
the two simulators (with other grids), so results on the second list are optimistic for settings chosen on the first.
Worlds are built on first use.
"""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from privrl.envs.patients.grid_table import GlucoseTable, GridTable, VitalsTable
from privrl.envs.patients.patient_world import KnownValue
from privrl.envs.recorded_world import OfflineEnv
from privrl.envs.tabular.icu_sepsis import ICUSepsis
from privrl.envs.zoo.endings import Endings
from privrl.envs.zoo.grid_with_holes import GridWithHoles
from privrl.envs.zoo.hidden_severity import HiddenSeverity
from privrl.envs.zoo.in_flight import InFlight
from privrl.mdp.types import TabularPolicy


@dataclass(frozen=True)
class World:
    """An offline world with its known values.

    Arguments:
        name: as in `privrl fit env:NAME`.
        kind: "endings", "in flight", "hidden severity" or "discretised".
        sizes: states (including ends of episodes), actions, horizon.
        values: of practice, of the best and of the worst policy. The best is attainable: the optimum if recorded states
            are complete; if severity is hidden, the best known policy on (step, recorded state); in discretised worlds,
            a rule on the measurements themselves whose constants were tuned in the simulator. The worst is over all
            policies that see everything; in discretised worlds, over the constant actions.
        summary: what is particular to this world.
        generate: builds it.
    """

    name: str
    kind: str
    sizes: tuple[int, int, int]
    values: tuple[float, float, float]
    summary: str
    generate: Callable[[], Any] = dataclasses.field(repr=False)

    @functools.cached_property
    def env(self) -> OfflineEnv:
        """The world itself, with `sample` and `behaviour_policy`."""
        return self.build()

    def build(self) -> OfflineEnv:
        """A new copy, with this name."""
        return dataclasses.replace(self.generate(), name=self.name, arguments=())

    @property
    def public(self) -> dict[str, object]:
        """The public facts that the owner of a table of this world would declare: sizes, ends, and whether only ends
        pay."""
        ends = self.env.terminal
        return {
            **dict(zip(("num_states", "num_actions", "horizon"), self.sizes, strict=True)),
            "terminal": ends,
            "rewards_at_end": self.env.arrival is not None
            and not np.delete(np.asarray(self.env.arrival), list(ends)).any(),
        }

    @property
    def practice(self) -> float:
        """The value of current practice."""
        return self.values[0]

    @property
    def best(self) -> float:
        """The attainable value."""
        return self.values[1]

    @property
    def range(self) -> float:
        """The difference between the best and the worst value."""
        return self.values[1] - self.values[2]

    def evaluate(self, policy: TabularPolicy | Float[Array | np.ndarray, "..."]) -> KnownValue:
        """The value of a policy on recorded states: `[S, A]` or `[H, S, A]` probabilities, or a `TabularPolicy`.

        It is exact (error 0), except in discretised worlds, where it is a mean over simulated people, the same for
        every policy.
        """
        given = policy.probabilities if isinstance(policy, TabularPolicy) else jnp.asarray(policy, float)
        S, A, H = self.sizes
        shape = (H, S, A)
        if given.shape not in (shape, shape[1:]):
            raise ValueError(
                f"The policy has shape {list(given.shape)}; `{self.name}` needs {list(shape[1:])} or {list(shape)}."
            )
        acting = TabularPolicy(jnp.broadcast_to(given, shape))
        if isinstance(self.env, GridTable):
            return self.env.estimate(acting)
        return KnownValue(float(self.env.value(acting)))

    def share(self, value: float) -> float:
        """The share of the gap from practice to the best that a value closes."""
        return (value - self.practice) / (self.best - self.practice)


def _named(*worlds: World) -> dict[str, World]:
    return {world.name: world for world in worlds}


def _made(kind: str, summary: str, name: str, build: Callable[..., object], *given: object, **options: object) -> World:
    return World(name, kind, *_KNOWN[name], summary, functools.partial(build, *given, **options))


_KNOWN: dict[str, tuple[tuple[int, int, int], tuple[float, float, float]]] = {
    # (states, actions, horizon), (practice, best, worst)
    "endings-50x4": ((50, 4, 20), (0.550472, 0.878052, 0.056512)),
    "endings-200x6": ((200, 6, 20), (0.586767, 0.912352, 0.064096)),
    "cut-80x4": ((80, 4, 6), (0.287714, 0.48004, 0.073876)),
    "holes-50x4": ((50, 4, 40), (0.534175, 0.988124, 0.0)),
    "icu-sepsis": ((716, 25, 20), (0.691983, 0.792216, 0.492968)),
    "in-flight-60x4": ((60, 4, 15), (4.460034, 6.649032, 0.950429)),
    "severity-48": ((50, 4, 20), (0.943751, 0.980765, 0.7133)),
    "vitals-45": ((47, 6, 20), (0.72132, 0.88651, 0.05361)),
    "glucose-108": ((108, 6, 24), (0.60038, 0.78663, 0.09152)),
    "endings-60x4": ((60, 4, 20), (0.533635, 0.881394, 0.077646)),
    "endings-150x8": ((150, 8, 20), (0.624524, 0.940549, 0.071268)),
    "endings-400x5": ((400, 5, 20), (0.546988, 0.886122, 0.068732)),
    "endings-1000x4": ((1000, 4, 20), (0.605352, 0.889511, 0.099956)),
    "cut-120x5": ((120, 5, 6), (0.372436, 0.632003, 0.090648)),
    "expert-100x5": ((100, 5, 20), (0.820967, 0.904983, 0.065045)),
    "rare-80x6": ((80, 6, 20), (0.423688, 0.899239, 0.058038)),
    "holes-65x4": ((65, 4, 40), (0.091682, 0.69617, 0.0)),
    "in-flight-40x5": ((40, 5, 15), (5.412652, 8.273886, 0.725233)),
    "in-flight-150x4": ((150, 4, 15), (5.122027, 7.616301, 0.984827)),
    "severity-108": ((110, 5, 20), (0.89918, 0.954367, 0.630446)),
    "severity-144": ((146, 6, 20), (0.886993, 0.937715, 0.592506)),
    "vitals-729": ((731, 6, 20), (0.72132, 0.88651, 0.05361)),
    "glucose-243": ((243, 6, 24), (0.60038, 0.78663, 0.09152)),
}

_endings = functools.partial(_made, "endings")
_in_flight = functools.partial(_made, "in flight", "habits")
_hidden = functools.partial(_made, "hidden severity", "doses follow what is not recorded")
_discretised = functools.partial(_made, "discretised")
_CUT, _WAY = "habits; many stays are cut", "a grid; practice knows most of the way"

CHOOSING = _named(
    _endings("habits", "endings-50x4", Endings, 50, 4, seed=101),
    _endings("habits", "endings-200x6", Endings, 200, 6, seed=102),
    _endings(_CUT, "cut-80x4", Endings, 80, 4, 6, seed=103),
    _endings(_WAY, "holes-50x4", GridWithHoles, 7, seed=104),
    _endings("sepsis, estimated from patients", "icu-sepsis", ICUSepsis),
    _in_flight("in-flight-60x4", InFlight, 60, 4, seed=105),
    _hidden("severity-48", HiddenSeverity, "4x4x3", 4, 4, seed=106),
    _discretised("`vitals` on an expert's grid", "vitals-45", VitalsTable),
    _discretised("`glucose-day` on an expert's grid", "glucose-108", GlucoseTable),
)

REPORTED = _named(
    _endings("habits", "endings-60x4", Endings, 60, 4, seed=201),
    _endings("habits", "endings-150x8", Endings, 150, 8, seed=202),
    _endings("habits", "endings-400x5", Endings, 400, 5, seed=203),
    _endings("habits; many states", "endings-1000x4", Endings, 1000, 4, seed=204),
    _endings(_CUT, "cut-120x5", Endings, 120, 5, 6, seed=205),
    _endings("practice is near the optimum", "expert-100x5", Endings, 100, 5, practice="expert", seed=206),
    _endings("good actions are hardly taken", "rare-80x6", Endings, 80, 6, practice="rare", seed=207),
    _endings(_WAY, "holes-65x4", GridWithHoles, 8, seed=208),
    _in_flight("in-flight-40x5", InFlight, 40, 5, seed=209),
    _in_flight("in-flight-150x4", InFlight, 150, 4, seed=210),
    _hidden("severity-108", HiddenSeverity),
    _hidden("severity-144", HiddenSeverity, "4x4x3x3", 5, 6, follows=1.0, seed=211),
    _discretised("`vitals`, three equal bins a column", "vitals-729", VitalsTable, "equal"),
    _discretised("`glucose-day`, three equal bins a column", "glucose-243", GlucoseTable, "equal"),
)

WORLDS = CHOOSING | REPORTED
