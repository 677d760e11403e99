"""Episodes step by step, as JSON gives them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_LARGEST = 2**63
_LEAST = {"state", "action", "reward"}
_ALL = _LEAST | {"next_state"}
_FORMS = (_LEAST, _ALL)


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
        if not (type(step) is dict or isinstance(step, Mapping)) or step.keys() not in _FORMS:
            raise ValueError(
                f"Step {h} must be an object with `state`, `action` and `reward`, optionally `next_state`, and nothing "
                "else."
            )
    length = len(steps)
    found = _whole(steps, "state")
    states[:length], actions[:length], rewards[:length] = found, _whole(steps, "action"), _finite(steps, "reward")
    after[: max(0, length - 1)] = found[1:]
    for h, value in _next_states(steps):
        after[h] = value
    return {"states": states, "actions": actions, "rewards": rewards, "next_states": after}


def _next_states(steps: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """Which next states were given, and where."""
    given = [h for h, step in enumerate(steps) if len(step) == len(_ALL)]
    return list(zip(given, _whole([steps[h] for h in given], "next_state", given), strict=True))


def _whole(steps: Sequence[Mapping[str, Any]], word: str, numbers: Sequence[int] | None = None) -> list[int]:
    """An entry of all steps; `numbers` are theirs where these are only some of an episode's."""
    values = [step[word] for step in steps]
    least = -1 if word == "next_state" else 0
    if values and not (set(map(type, values)) == {int} and least <= min(values) and max(values) < _LARGEST):
        bad = next(i for i, x in enumerate(values) if type(x) is not int or not least <= x < _LARGEST)
        raise ValueError(
            f"`{word}` of step {bad if numbers is None else numbers[bad]} must be a whole number, {least} or larger"
            + (" (-1: not recorded)." if least else ".")
        )
    return values


def _finite(steps: Sequence[Mapping[str, Any]], word: str) -> list[float]:
    values = [step[word] for step in steps]
    for h, value in enumerate(values):
        if type(value) not in (int, float) or not -_LARGEST < value < _LARGEST:  # nor is NaN between them
            raise ValueError(f"`{word}` of step {h} must be a finite number.")
    return values
