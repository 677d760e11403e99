"""Parse episodes that are given step by step, as JSON gives them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_LARGEST = 2**63
_LEAST = {"state", "action", "reward"}
_FORMS = (_LEAST, _LEAST | {"next_state"})
_LEFT_OUT = object()


class Columns(NamedTuple):
    """The columns of an episode of numbered states, padded to the horizon; a next state of -1 was not recorded."""

    states: list[int]
    actions: list[int]
    rewards: list[float]
    next_states: list[int]
    length: int


def columns_of_steps(steps: object, horizon: int) -> Columns:
    """The columns of an episode that is given step by step, padded to the horizon.

    An error names the step and the entry, never the value.
    """
    if isinstance(steps, str | bytes) or not isinstance(steps, Sequence):
        raise ValueError("`steps` must be a list with one object for each step, in order.")
    for h, step in enumerate(steps):
        if not (type(step) is dict or isinstance(step, Mapping)) or step.keys() not in _FORMS:
            raise ValueError(
                f"Step {h} must be an object with `state`, `action` and `reward`, optionally `next_state`, and nothing "
                "else."
            )
    states, actions, rewards = ([step[word] for step in steps] for word in ("state", "action", "reward"))
    next_states = [step.get("next_state", _LEFT_OUT) for step in steps]
    return padded_columns(states, actions, rewards, next_states, horizon, _LEFT_OUT)


def padded_columns(
    states: Sequence[Any],
    actions: Sequence[Any],
    rewards: Sequence[Any],
    next_states: Sequence[Any],
    horizon: int,
    left_out: object,
) -> Columns:
    """The columns of an episode, checked entry by entry and padded to the horizon.

    A next state that is `left_out` is the state of the step after; that of the last step is -1, not recorded.
    """
    length = len(states)
    if length > horizon:
        raise ValueError(f"`steps` has {length} steps and the study has {horizon}. Send the first {horizon}.")
    _check_whole("state", states)
    _check_whole("action", actions)
    _check_finite("reward", rewards)
    after = [*states[1:], -1] if length else []
    given = [h for h, value in enumerate(next_states) if value is not left_out]
    _check_whole("next_state", [next_states[h] for h in given], given)
    for h in given:
        if h + 1 < length and next_states[h] not in (-1, after[h]):
            raise ValueError(
                f"`next_state` of step {h} contradicts `state` of step {h + 1}. Leave `next_state` out, except in the "
                "last step."
            )
        after[h] = next_states[h]
    zeros = [0] * (horizon - length)
    return Columns([*states, *zeros], [*actions, *zeros], [*rewards, *zeros], after + [-1] * len(zeros), length)


def _check_whole(word: str, values: Sequence[Any], steps: Sequence[int] | None = None) -> None:
    """Check an entry of all steps, or of those with these numbers."""
    least = -1 if word == "next_state" else 0
    if values and not (set(map(type, values)) == {int} and least <= min(values) and max(values) < _LARGEST):
        bad = next(i for i, x in enumerate(values) if type(x) is not int or not least <= x < _LARGEST)
        raise ValueError(
            f"`{word}` of step {bad if steps is None else steps[bad]} must be a whole number, {least} or larger"
            + (" (-1: not recorded)." if least else ".")
        )


def _check_finite(word: str, values: Sequence[Any]) -> None:
    for h, value in enumerate(values):
        if type(value) not in (int, float) or not -_LARGEST < value < _LARGEST:  # NaN fails both comparisons
            raise ValueError(f"`{word}` of step {h} must be a finite number.")
