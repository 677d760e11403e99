"""What commands that evaluate share: their options, the learner that evaluates, the truth in a known world, words."""

from dataclasses import dataclass
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import typer
from jaxtyping import Array, Float, PRNGKeyArray

from privrl.cli.options.grouped import flag, given, refuse
from privrl.cli.output import say
from privrl.contracts.learner import AbstractOfflineLearner
from privrl.data.practice import read_practice
from privrl.envs.patients.actors import MemorylessActor, as_actor
from privrl.envs.patients.patient_world import AbstractPatients
from privrl.envs.recorded_world import OfflineEnv
from privrl.evaluation.estimates import Evaluation
from privrl.mdp.assistance import AbstractAssisted
from privrl.studies.results.result import Result
from privrl.studies.simulation.sampled_tables import assisted_gain

NOT_COMPARED = "Not compared with practice: `--evaluate .3` holds out 30% of the people to do so."
WORLD = "env"
"""As a table of practice: that of the simulated world itself."""
NOT_BETTER = 3
"""The exit code of `--require-better` where nothing better was shown."""
_PANEL = "Comparison with practice"
_STAYS = 40_000  # simulated to know what an assisted policy is worth


@dataclass(frozen=True)
class ComparisonOptions:
    """How a policy is compared with practice."""

    practice: Annotated[
        str | None,
        typer.Option(
            "--practice",
            help="Public table of state, action, probability (.parquet or .csv); `env` for a simulated world's own.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    max_ratio: Annotated[
        float,
        typer.Option(
            "--max-ratio",
            help="Largest factor by which the policy may raise an action's probability over current practice; or inf.",
            rich_help_panel=_PANEL,
        ),
    ] = 1.5
    max_weight: Annotated[
        float,
        typer.Option(
            "--max-weight",
            help="Stop advising in an episode once its weight reaches this limit.",
            rich_help_panel=_PANEL,
        ),
    ] = 4.0
    return_bound: Annotated[
        float | None,
        typer.Option(
            "--return-bound",
            help="The largest return of an episode, public (1 with rewards at the end, else the horizon).",
            rich_help_panel=_PANEL,
        ),
    ] = None


@dataclass(frozen=True)
class EvaluateOptions:
    """Whether a fit is compared with practice, and what is required of it."""

    evaluate: Annotated[
        float | None,
        typer.Option("--evaluate", help="Hold out this share of the people to evaluate with.", rich_help_panel=_PANEL),
    ] = None
    require_better: Annotated[
        bool,
        typer.Option(
            "--require-better", help="Save no policy and exit with 3 unless it is better.", rich_help_panel=_PANEL
        ),
    ] = False
    release_anyway: Annotated[
        bool,
        typer.Option(
            "--release-anyway",
            help="Save the assisted policy even if practice could not be checked or no gain is seen.",
            rich_help_panel=_PANEL,
        ),
    ] = False

    def arguments(
        self,
        learner: AbstractOfflineLearner,
        comparison: ComparisonOptions,
        ends: dict[str, Any],
        env: OfflineEnv | AbstractPatients | None = None,
    ) -> dict[str, Any]:
        """The arguments of `fit` that evaluate the policy in the same study; none unless `--evaluate` is given."""
        if self.evaluate is None:
            return {}
        if learner.measurements:
            refuse_practice(comparison)
        grid = None if isinstance(env, AbstractPatients) else env
        practice = practice_of(comparison.practice, learner.space, ends["terminal"], grid)
        largest = env.largest_reward if isinstance(env, AbstractPatients) else 1.0
        bound = return_bound_of(comparison.return_bound, ends["rewards_at_end"], learner.horizon * largest)
        return {
            "evaluate": self.evaluate,
            "practice": practice,
            "terminal": ends["terminal"],
            "return_range": (0.0, bound),
            "max_ratio": comparison.max_ratio,
            "max_weight": comparison.max_weight,
            "release_anyway": self.release_anyway,
        }


def return_bound_of(given: float | None, rewards_at_end: bool, largest: float) -> float:
    """The public bound on returns: as given, or from the `largest` sum of all rewards of an episode."""
    if given is not None and not 0.0 < given <= largest:
        raise ValueError(
            f"`--return-bound` is {given:g}; rewards of an episode add up to at most {largest:g}, so it must lie in "
            f"(0, {largest:g}]."
        )
    return given or (1.0 if rewards_at_end else float(largest))


def refuse_practice(comparison: ComparisonOptions) -> None:
    """On measurements, nobody can list the probabilities of practice."""
    refuse(given(comparison, ("practice",)), "lists numbered states, and these are measurements: it is estimated")


def practice_of(
    name: str | None, space: tuple[int, int], terminal: tuple[int, ...], env: OfflineEnv | None = None
) -> Float[Array, "S A"] | None:
    """Public probabilities of practice: from a file, or those of a simulated world."""
    if name is None:
        return None
    if name == WORLD:
        if env is None:
            raise ValueError("`--practice env` is for simulated people, `env:NAME`. Give a table of practice.")
        return jnp.asarray(env.behaviour)
    return jnp.asarray(read_practice(name, *space, terminal))


def truth_of(env: OfflineEnv | AbstractPatients, result: Result, *, key: PRNGKeyArray) -> dict[str, float]:
    """What the estimates are about, in a world whose values are known."""
    assert result.evaluation is not None
    if isinstance(env, AbstractPatients):
        practice, full = float(env.value(env.practice)), env.gain(MemorylessActor(as_actor(result.advice)))
        found = {"practice": practice, "model_gain": full.value, "model_gain_se": full.error}
    else:
        practice = float(env.value(env.behaviour_policy()))
        found = {"practice": practice, "model_gain": float(env.value(result.advice)) - practice}
    assisted = assisted_gain(env, result.evaluation.policy, _STAYS, key=key)
    found |= {"gain": assisted.value, "gain_se": assisted.error}
    kept = 0.0 if isinstance(result.policy, AbstractAssisted) and result.policy.is_silent else 1.0
    return found | {"value": practice + kept * assisted.value, "value_se": kept * assisted.error}


def evaluation_json(evaluation: Evaluation | None, truth: dict[str, float] | None = None) -> dict[str, Any] | None:
    """What a command says about an evaluation, as JSON; the policy is in its own file."""
    if evaluation is None:
        return None
    content = {name: value for name, value in evaluation.to_json().items() if name not in ("policy", "certificate")}
    return {**content, "line": evaluation.line, "words": evaluation.words, "truth": truth}


def show_evaluation(evaluation: Evaluation | None, truth: dict[str, float] | None = None) -> None:
    """Sentences, the truth beside them where it is known, and the verdict in the last line."""
    if evaluation is None:
        say(NOT_COMPARED)
        return
    say(evaluation.words)
    if truth is not None:
        known = [f"practice {truth['practice']:.4f}"]
        if "gain" in truth:
            known.append(f"assisted policy {truth['gain']:+.4f} (standard error {truth['gain_se']:.4f})")
        error = f" (standard error {truth['model_gain_se']:.4f})" if "model_gain_se" in truth else ""
        known.append(f"full advice {truth['model_gain']:+.4f}{error}")
        say(f"The truth in this world: {', '.join(known)}.")
    say(evaluation.line)


def check_comparison(wanted: EvaluateOptions, comparison: ComparisonOptions) -> None:
    """Refuses options of a comparison without one."""
    if wanted.evaluate is None:
        given_anyway = {**given(comparison, ("practice", "return_bound")), **given(wanted)}
        for name in given_anyway:
            raise ValueError(f"{flag(name)} belongs to a comparison with practice, and `--evaluate` is missing.")


def simulation_key(seed: int) -> PRNGKeyArray:
    """For the simulation that finds the truth, apart from those of people and noise."""
    return jax.random.fold_in(jax.random.key(seed), 2**31 - 1)
