"""The sepsis demo: learn a private treatment policy from recorded stays, and measure what privacy costs.

Stays are sampled from ICU-Sepsis under the doctors' policy. Each repetition draws new stays and seeded noise, so
that the demo can show means and standard errors. The saved policy is made as for real people, with noise from the
operating system.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from privrl.contracts.learner import AbstractOfflineLearner
from privrl.envs.base import Env
from privrl.envs.worlds_by_name import make
from privrl.recipes.all_recipes import get
from privrl.reports.demo_page import render_demo
from privrl.reports.demo_study import DemoStudy
from privrl.studies.offline.fitting import fit
from privrl.studies.results.result import Result
from privrl.studies.simulation.sampled_tables import baseline_values, sampled
from privrl.writing import whole_folder

RECIPE, PLAIN = "dp-tdfp", "tdfp"
UNIT = "stay"
FILES = frozenset({"report.html", "values.json", "policy"})


@dataclass(frozen=True)
class DemoSize:
    """The size of the demo.

    Arguments:
        episodes: the number of stays.
        seeds: the number of repetitions.
        epsilon: the budget of the saved policy; the demo also shows a third of it and three times it.
        delta: well below one over the number of stays.
        horizon: the number of steps of a stay.
    """

    episodes: int = 100_000
    seeds: int = 5
    epsilon: float = 3.0
    delta: float = 1e-6
    horizon: int = 20

    def __post_init__(self) -> None:
        for name in ("episodes", "seeds", "horizon"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` is {getattr(self, name)}; it must be at least 1.")

    @classmethod
    def quick(cls, epsilon: float = 3.0) -> "DemoSize":
        """Return a size that is too small to learn from, for tests and a first look."""
        return cls(episodes=2_000, seeds=1, epsilon=epsilon, horizon=3)

    @property
    def epsilons(self) -> tuple[float, ...]:
        """The budgets that the demo shows."""
        return (self.epsilon / 3, self.epsilon, self.epsilon * 3)

    @property
    def fits(self) -> int:
        """The number of policies to learn."""
        return 1 + self.seeds * (1 + len(self.epsilons))


def run_sepsis_study(
    size: DemoSize,
    *,
    seed: int,
    progress: Callable[[str], None] = lambda done: None,
    env: Env | None = None,
) -> DemoStudy:
    """Learn policies with and without privacy, and compute their exact values.

    Arguments:
        size: the size of the demo.
        seed: the seed of the simulated stays, and of the noise of all policies except the saved one.
        progress: called with a line of text after each policy, `size.fits` times.
        env: a world to use instead of ICU-Sepsis.
    """
    started = time.perf_counter()
    private, plain = get(RECIPE), get(PLAIN)
    # Comes first because it refuses budgets that are out of range.
    budgets = {e: private.privatizer(epsilon=e, delta=size.delta) for e in size.epsilons}
    world: Any = make("icu-sepsis", horizon=size.horizon) if env is None else env
    learner, plain_learner = private.build(world), plain.build(world)
    assert isinstance(learner, AbstractOfflineLearner) and isinstance(plain_learner, AbstractOfflineLearner)
    baselines = baseline_values(world)
    non_private: list[float] = []
    values: dict[float, list[float]] = {e: [] for e in budgets}
    kept: Result | None = None
    for s, repetition in enumerate(jax.random.split(jax.random.key(seed), size.seeds)):
        data_key, noise_key = jax.random.split(repetition)
        stays = sampled(world, size.episodes, data_key)
        if kept is None:
            kept = fit(stays, learner, budgets[size.epsilon], unit=UNIT)  # without a key the noise cannot be reproduced
            progress("the saved policy")
        result = fit(stays, plain_learner, plain.privatizer(), key=noise_key, unit=UNIT)
        non_private.append(float(world.value(result.policy)))
        progress(f"repetition {s + 1}, no privacy")
        for i, (e, budget) in enumerate(budgets.items()):
            result = fit(stays, learner, budget, key=jax.random.fold_in(noise_key, i), unit=UNIT)
            values[e].append(float(world.value(result.policy)))
            progress(f"repetition {s + 1}, epsilon {e:.3g}")
    assert kept is not None
    return DemoStudy(
        recipe=RECIPE,
        episodes=size.episodes,
        seed=seed,
        epsilon=size.epsilon,
        baselines=baselines,
        non_private=tuple(non_private),
        private={e: tuple(v) for e, v in values.items()},
        result=kept,
        value=float(world.value(kept.policy)),
        seconds=time.perf_counter() - started,
    )


def save_study(study: DemoStudy, folder: str | Path) -> Path:
    """Write `report.html`, `values.json` and `policy/`, all or nothing. An earlier demo in the folder is replaced."""
    with whole_folder(folder, FILES) as scratch:
        study.result.save(scratch / "policy")
        (scratch / "values.json").write_text(json.dumps(study.to_json(), indent=2, allow_nan=False))
        (scratch / "report.html").write_text(render_demo(study), encoding="utf-8")
    return Path(folder)
