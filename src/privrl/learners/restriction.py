"""Public rules in learners: which actions a plan may choose, and which learners know rules.

A plan chooses among the actions that rules on the observation allow. Rules that depend on the previous action are not
part of a plan: its state would have to hold that action, and the sums by (s, a) do not. The policy keeps them at every
decision instead (`mdp/rules.py`).
"""

from dataclasses import fields, replace
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool

from privrl.contracts.learner import AbstractLearner
from privrl.mdp.rules import RULES, Rules


def allowed_table(rules: Rules, num_states: int) -> Bool[Array, "S A"] | None:
    """Which actions a plan may choose in each state; `None` without rules."""
    return jnp.asarray(rules.state_table(num_states)) if rules else None


def list_rules(rules: Rules) -> dict[str, object]:
    """The rules as an entry of `bounds()`, so that a certificate lists them."""
    return {RULES: rules.texts} if rules else {}


def restrict(learner: AbstractLearner, rules: Rules) -> AbstractLearner:
    """The same learner with these rules.

    Raises:
        ValueError: the learner does not know rules, or has others.
    """
    if not any(field.name == RULES for field in fields(learner)):
        raise ValueError(
            f"`{type(learner).__name__}` cannot keep rules on actions. Use a recipe such as auto, dp-tap, dp-tdfp, "
            "dp-apvi or dp-pevi, or dp-lap for measurements."
        )
    own: Any = learner
    if own.rules and own.rules != rules:
        raise ValueError(f"`{type(learner).__name__}` has other rules already. Give them once.")
    settings: dict[str, Any] = {RULES: rules}
    if hasattr(learner, "learners"):
        settings["learners"] = tuple(restrict(one, rules) for one in learner.learners)
    return replace(own, **settings)
