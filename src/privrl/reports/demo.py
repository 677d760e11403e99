"""The sepsis demo: a private treatment policy from offline stays, and an honest picture of what privacy cost.

Stays are sampled from ICU-Sepsis under the doctors' policy. Repetitions draw new stays and seeded noise, to show means
and errors. The policy that is saved is made the way it would be made on real people: noise from the operating system.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax

from privrl.contracts.learner import AbstractOfflineLearner
from privrl.envs.base import Env
from privrl.envs.worlds_by_name import make
from privrl.recipes.all_recipes import get
from privrl.reports.report import study_page
from privrl.reports.study import DemoStudy
from privrl.studies.offline.fit import fit
from privrl.studies.results.result import Result
from privrl.studies.simulation.sampled_tables import baseline_values, sampled
from privrl.writing import whole_folder

RECIPE, PLAIN = "dp-tdfp", "tdfp"
UNIT = "stay"
FILES = frozenset({"report.html", "values.json", "policy"})


@dataclass(frozen=True)
class DemoSize:
    """How large the demo is. Budgets shown are a third of `epsilon`, `epsilon` itself, and three times it.

    `delta` is well below one over the number of stays.
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
        """Too small to learn anything; for tests and a first look."""
        return cls(episodes=2_000, seeds=1, epsilon=epsilon, horizon=3)

    @property
    def epsilons(self) -> tuple[float, ...]:
        return (self.epsilon / 3, self.epsilon, self.epsilon * 3)

    @property
    def fits(self) -> int:
        """How many policies are learned."""
        return 1 + self.seeds * (1 + len(self.epsilons))


def sepsis_study(
    size: DemoSize,
    *,
    seed: int,
    progress: Callable[[str], None] = lambda done: None,
    env: Env | None = None,
) -> DemoStudy:
    """Learns with and without privacy and evaluates exactly.

    Arguments:
        size: how large.
        seed: of the simulated stays, and of the noise of all policies but the one to keep.
        progress: called with a line of text after each policy that was learned, `size.fits` times.
        env: another world than ICU-Sepsis.
    """
    started = time.perf_counter()
    private, plain = get(RECIPE), get(PLAIN)
    budgets = {e: private.privatizer(epsilon=e, delta=size.delta) for e in size.epsilons}  # refuses bad ones at once
    world = make("icu-sepsis", horizon=size.horizon) if env is None else env
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
            kept = fit(stays, learner, budgets[size.epsilon], unit=UNIT)  # no key: noise that nobody can replay
            progress("the policy to keep")
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
    """Writes `report.html`, `values.json` and `policy/`, all or nothing; an earlier demo there is replaced."""
    with whole_folder(folder, FILES) as scratch:
        study.result.save(scratch / "policy")
        (scratch / "values.json").write_text(json.dumps(study.to_json(), indent=2, allow_nan=False))
        (scratch / "report.html").write_text(study_page(study), encoding="utf-8")
    return Path(folder)
