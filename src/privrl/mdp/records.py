"""Episodes step by step, as JSON gives them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_LARGEST = 2**63
_WORDS = ("state", "action", "reward", "next_state")


def columns_of_steps(steps: Any, horizon: int) -> dict[str, np.ndarray]:
    """The columns of an episode that is given step by step, as JSON gives it, padded to the horizon.

    A next state that is left out is the state of the step after; of the last step it is -1, not recorded. What is wrong
    is said with the number of the step and the name of the entry, and never with its value.
    """
    if isinstance(steps, str | bytes) or not isinstance(steps, Sequence):
        raise ValueError("`steps` must be a list with one object for each step, in order.")
    if len(steps) > horizon:
        raise ValueError(f"`steps` has {len(steps)} steps and the study has {horizon}. Send the first {horizon}.")
    states, actions, after = (np.zeros(horizon, np.int64) for _ in range(3))
    rewards = np.zeros(horizon)
    after[:] = -1
    for h, step in enumerate(steps):
        if not isinstance(step, Mapping) or not {"state", "action", "reward"} <= step.keys() <= set(_WORDS):
            raise ValueError(
                f"Step {h} must be an object with `state`, `action` and `reward`, optionally `next_state`, and nothing "
                "else."
            )
        states[h], actions[h] = _whole(step, "state", h), _whole(step, "action", h)
        rewards[h] = _finite(step, "reward", h)
        if "next_state" in step:
            after[h] = _whole(step, "next_state", h)
        elif h + 1 < len(steps) and isinstance(steps[h + 1], Mapping) and "state" in steps[h + 1]:
            after[h] = _whole(steps[h + 1], "state", h + 1)
    return {"states": states, "actions": actions, "rewards": rewards, "next_states": after}


def _whole(step: Mapping[str, Any], word: str, h: int) -> int:
    value = step[word]
    least = -1 if word == "next_state" else 0
    if type(value) is not int or not least <= value < _LARGEST:
        raise ValueError(
            f"`{word}` of step {h} must be a whole number, {least} or larger"
            + (" (-1: not recorded)." if least else ".")
        )
    return value


def _finite(step: Mapping[str, Any], word: str, h: int) -> float:
    value = step[word]
    if type(value) not in (int, float) or not math.isfinite(value) or abs(value) >= _LARGEST:
        raise ValueError(f"`{word}` of step {h} must be a finite number.")
    return float(value)
