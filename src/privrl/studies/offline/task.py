"""What `fit` was asked for, before the data are known: a learner or a recipe, a privatizer, and a comparison."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from privrl.contracts.learner import AbstractLearner, AbstractOfflineLearner
from privrl.data.practice import read_practice
from privrl.evaluation.estimates import Assumption
from privrl.learners.restriction import restrict
from privrl.mdp.measurements import BinnedAction
from privrl.mdp.reported_columns import UNREPORTED, ReportedColumns
from privrl.mdp.rule_file import RulesLike, Vocabulary, read_rules
from privrl.mdp.rules import Rules
from privrl.privacy.trust.privatizers import AbstractPrivatizer
from privrl.recipes.recipe import Recipe
from privrl.studies.offline.learning import PracticeComparison

Build = Callable[[Recipe, int | None], AbstractLearner]
"""Builds the learner of a recipe, given the number of people to learn from if that is public."""
WORLD = "env"
"""As `practice`: the probabilities of the simulated world itself."""


@dataclass(frozen=True)
class Ends:
    """What is public about how episodes end and pay.

    Attributes:
        terminal: states whose entry ends an episode.
        rewards_at_end: whether only the last step of an episode pays.
        largest_reward: the largest reward of one step.
        behaviour: the probabilities of current practice in a simulated world.
        logged: whether the table holds the probabilities with which a program took the recorded actions.
        least_propensity: the number below which no action of the program had a probability; 0 if none was given.
        reported: columns by which and about which an evaluation estimates more.
    """

    terminal: tuple[int, ...] = ()
    rewards_at_end: bool = False
    largest_reward: float = 1.0
    behaviour: Float[Array, "S A"] | None = None
    logged: bool = False
    least_propensity: float = 0.0
    reported: ReportedColumns = UNREPORTED

    def return_range(self, given: tuple[float, float] | None, horizon: int) -> tuple[float, float]:
        """The public range of returns: as given, or from 0 to the largest that an episode can have."""
        largest = horizon * self.largest_reward
        if given is None:
            return 0.0, 1.0 if self.rewards_at_end else largest
        if not given[0] < given[1] <= largest:
            raise ValueError(
                f"`return_range` is {given[0]:g} to {given[1]:g}; the rewards of an episode add up to at most "
                f"{largest:g}, so it must end above its start and at {largest:g} or below."
            )
        return given


@dataclass(frozen=True)
class RuleArguments:
    """Public rules on actions as `fit` and `evaluate` take them, and the names that they may use.

    Attributes:
        source: the file, or its content.
        state_names, action_names: names of states and actions.
        doses: the doses of which an action consists.
    """

    source: RulesLike
    state_names: tuple[str, ...] = ()
    action_names: tuple[str, ...] = ()
    doses: tuple[BinnedAction, ...] = ()

    def compile(self, space: tuple[int, int], columns: tuple[object, ...]) -> Rules:
        """The rules for states (or rows of measurements) and actions; refuses rules that leave no action."""
        named = {"action_names": self.action_names, "doses": self.doses}
        states = {} if columns else {"num_states": space[0], "state_names": self.state_names}
        return read_rules(self.source, Vocabulary(space[1], columns, **states, **named))  # type: ignore[arg-type]

    def restricted(self, learner: AbstractLearner) -> AbstractLearner:
        """The learner with these rules."""
        if not isinstance(learner, AbstractOfflineLearner) or learner.learns_from != "episodes":
            raise ValueError("`rules` are about the actions of people in a table. Leave them out here.")
        return restrict(learner, self.compile(learner.space, learner.measurements))


@dataclass(frozen=True)
class Task:
    """A learner, or the recipe that builds it, with its privatizer and the arguments of a comparison."""

    learner: AbstractLearner | None
    recipe: Recipe | None
    privatizer: AbstractPrivatizer
    evaluate: float | None
    practice: Float[ArrayLike, "S A"] | str | Path | None
    return_range: tuple[float, float] | None
    max_ratio: float | None
    max_weight: float | None
    release_anyway: bool
    spend_anyway: bool = True
    assume_recorded: bool = False
    assume_markov: bool = False
    rules: "RuleArguments | None" = None

    def learner_for(
        self, build: Callable[[Recipe, int | None], AbstractLearner], people: int | None
    ) -> AbstractLearner:
        """The learner: as given, or built by the recipe for the public number of people to learn from; with the rules
        on actions, which are compiled and checked here."""
        if self.recipe is None:
            assert self.learner is not None
            return self._restricted(self.learner)
        public = people if self.privatizer.adjacency == "replace-one" else None
        if public is not None and self.evaluate is not None:
            public = round((1.0 - self.evaluate) * public)
        return self._restricted(build(self.recipe, public))

    def _restricted(self, learner: AbstractLearner) -> AbstractLearner:
        return learner if self.rules is None else self.rules.restricted(learner)

    def comparison(self, learner: AbstractLearner, ends: Ends) -> PracticeComparison | None:
        """The comparison with current practice, with everything that is public filled in; `None` without one."""
        if self.evaluate is None or not isinstance(learner, AbstractOfflineLearner):
            return None
        return PracticeComparison(
            self.evaluate,
            read_probabilities(self.practice, learner.space, bool(learner.measurements), ends),
            ends.terminal,
            ends.return_range(self.return_range, learner.horizon),
            self.max_ratio,
            self.max_weight,
            self.release_anyway,
            assumption_of(ends.logged, self.assume_recorded, ends.least_propensity),
            self.assume_markov,
            ends.least_propensity,
            ends.reported,
        )


def assumption_of(logged: bool, assume_recorded: bool, least_propensity: float = 0.0) -> Assumption:
    """What is known about who decided.

    Raises:
        ValueError: if both a program and people are named.
    """
    if logged and assume_recorded:
        raise ValueError(
            "The table has logged propensities, and `assume_recorded` says that people decided. Leave out one of them."
        )
    if logged:
        return "randomised" if least_propensity > 0.0 else "logged"
    return "recorded" if assume_recorded else "checked"


def read_probabilities(
    practice: Float[ArrayLike, "S A"] | str | Path | None, space: tuple[int, int], measured: bool, ends: Ends
) -> Float[Array, "S A"] | None:
    """The public probabilities of current practice: an array, those in a file, or those of a simulated world."""
    if practice is None:
        return None
    if measured:
        raise ValueError(
            "`practice` lists probabilities of numbered states, and these states are measurements. Leave it out; "
            "current practice is estimated."
        )
    if isinstance(practice, str) and practice == WORLD:
        if ends.behaviour is None:
            raise ValueError(f"`practice` = {WORLD!r} is for simulated people. Give a table of probabilities.")
        return ends.behaviour
    if isinstance(practice, str | Path):
        return jnp.asarray(read_practice(practice, *space, ends.terminal))
    return jnp.asarray(np.asarray(practice), float)
