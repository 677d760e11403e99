"""Practice in the generated worlds: probabilities of actions `[S, A]` from the quality of actions and from habits.

- `habits`: every clinic prefers some actions everywhere and others in some states, and knows a little about quality.
- `expert`: nearly the best action, with probabilities that follow action values as practice perceives them.
- `rare`: habits, but half of the actions of each state, including the best one in most states, are hardly ever taken.
"""

from typing import Literal

import numpy as np
from jaxtyping import Float

from privrl.mdp.planning import optimal_values
from privrl.mdp.types import TabularMDP

PracticeKind = Literal["habits", "expert", "rare"]

_GLOBAL, _LOCAL, _SKILL = 0.8, 0.8, 0.5  # parts of the logits, in standard deviations
_EXPERT_SPREAD, _EXPERT_ERROR = 0.25, 0.4  # in standard deviations of advantages
_RARELY = 0.01
_BEST_IS_RARE = 0.7


def _softmax(logits: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S A"]:
    weight = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weight / weight.sum(axis=-1, keepdims=True)


def draw_practice(mdp: TabularMDP, kind: PracticeKind, rng: np.random.Generator) -> Float[np.ndarray, "S A"]:
    """Draw how practice acts in a stationary world, by the kind of practice.

    Skill is measured at the first step: the standardised advantage Q*_1(s, a) - mean_a Q*_1(s, a).
    """
    values = np.asarray(optimal_values(mdp)[1])[0]
    advantage = values - values.mean(axis=-1, keepdims=True)
    spread = max(float(advantage.std()), 1e-12)
    if kind == "expert":
        perceived = advantage / spread + _EXPERT_ERROR * rng.normal(size=advantage.shape)
        return _softmax(perceived / _EXPERT_SPREAD)
    if kind not in ("habits", "rare"):
        raise ValueError(f"`practice` is {kind!r}; it must be 'habits', 'expert' or 'rare'.")
    S, A = values.shape
    logits = _GLOBAL * rng.normal(size=A) + _LOCAL * rng.normal(size=(S, A)) + _SKILL * advantage / spread
    usual = _softmax(logits)
    return _with_rare_actions(usual, values, rng) if kind == "rare" else usual


def _with_rare_actions(
    usual: Float[np.ndarray, "S A"], values: Float[np.ndarray, "S A"], rng: np.random.Generator
) -> Float[np.ndarray, "S A"]:
    """Half of the actions of each state get one hundredth each; the others share the rest in their usual
    proportions."""
    S, A = usual.shape
    order = rng.uniform(size=(S, A))
    best = values.argmax(axis=-1)
    order[np.arange(S), best] = np.where(rng.uniform(size=S) < _BEST_IS_RARE, -1.0, 2.0)
    rank = order.argsort(axis=-1).argsort(axis=-1)
    rare = rank < A // 2
    often = np.where(rare, 0.0, usual)
    often *= (1 - _RARELY * (A // 2)) / often.sum(axis=-1, keepdims=True)
    return np.where(rare, _RARELY, often)
