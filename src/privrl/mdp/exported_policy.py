"""A saved policy, read from its `policy.json` and run without JAX, decision by decision.

`docs/guides/exported_policy.md` specifies the format. `service/client/privrl-policy.mjs` is the same reader in
JavaScript, and both pass the vectors in `service/client/policy-vectors.json`. The formulas are those of
`measured_policy.py`, `assisted_measured.py` and `assistance.py`.

This module is imported in a fraction of a second, because it needs neither JAX nor the rest of privrl.
"""

import json
import math
import secrets
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from privrl.mdp.measurements import Category, Feature, Measurement
from privrl.mdp.observations import STATE, Unusual, read_row, read_state, whole_number
from privrl.mdp.policy_format import check_policy, is_number
from privrl.mdp.rules import Rules

LEAVE = -1
"""The answer "leave it to the clinician"."""
LARGEST_WEIGHT = 1e300
"""Of an episode, if a policy has no limit: products stay finite."""
ON_STATES, ASSISTED_ON_STATES = "privrl policy on states, 1", "privrl assisted policy on states, 1"
ON_MEASUREMENTS, ASSISTED = "privrl policy on measurements, 1", "privrl assisted policy on measurements, 1"
_KINDS = (ON_STATES, ASSISTED_ON_STATES, ON_MEASUREMENTS, ASSISTED)
_REACH, _HALF = 1.5, 0.5
_LEAST_PROBABILITY = 0.01

LeftBecause = Literal[
    "",
    "withheld",
    "rules",
    "too little support",
    "no advantage",
    "not drawn",
    "weight reached",
    "past the horizon",
]
Observation = int | str | Mapping[str, object] | Sequence[object] | np.ndarray
"""The number or the name of a state; or values of columns, as a mapping or in their order."""


@dataclass(frozen=True)
class EpisodeState:
    """What must be kept from one decision of an episode to the next: plain numbers, to be stored anywhere.

    Attributes:
        step: the number of decisions so far.
        weight: the running weight, 1 at the beginning.
        previous: the action that was taken last; `None` before the first decision.
    """

    step: int = 0
    weight: float = 1.0
    previous: int | None = None


@dataclass(frozen=True)
class Advice:
    """What a policy advises at one decision.

    Attributes:
        action: the action; `None`: the decision is left to the clinician.
        reason: why it is left: the whole policy was "withheld" and never advises, a rule forbids the policy's choice
            after the previous action ("rules"), practice takes it too rarely or too little is known ("too little
            support"), it is not estimated to be better than practice ("no advantage"), it was "not drawn", the running
            weight has reached its limit ("weight reached"), or the policy has no such step, or none that was evaluated
            ("past the horizon"). Empty if there is an action.
        unusual: values that are missing or outside the public bounds.
        probability: the probability with which the advice is given at this decision.
        choice, if_taken, otherwise: the policy's choice, and the factor of the running weight if it is taken or not.
            Do not show `choice` if the decision is left to the clinician. A withheld policy has none.
    """

    action: int | None
    reason: LeftBecause
    unusual: tuple[Unusual, ...]
    probability: float
    choice: int | None
    if_taken: float
    otherwise: float

    def __int__(self) -> int:
        return LEAVE if self.action is None else self.action


class ExportedPolicy:
    """A policy from `policy.json`.

    Arguments:
        content: the JSON of a policy, as `Result.save` writes it.

    Attributes:
        is_withheld: whether no decision can ever have enough support, as in a policy that was withheld. Such a policy
            never advises; its reason is "withheld".

    Example:
    ```python
    policy = ExportedPolicy.load("policy/policy.json")
    episode = policy.start_episode()
    advice = episode.advise({"lactate": 2.1, "map": 65.0, "ward": "icu"})
    episode.record(2 if advice.action is None else advice.action)  # the action that was taken
    ```
    """

    def __init__(self, content: Mapping[str, object]) -> None:
        kind = content.get("kind") if isinstance(content, Mapping) else None
        if kind not in _KINDS:
            raise ValueError(f"This is not the JSON of a policy: `kind` must be one of {', '.join(_KINDS)}.")
        if "class" in content:
            raise ValueError(f"This policy is a `{content['class']}`, which runs only as that class. Load its folder.")
        try:
            check_policy(content, assisted="assisted" in kind, measured="measurements" in kind)
        except ValueError as error:
            what = kind.removesuffix(", 1")
            raise ValueError(f"This is not the JSON of a {what}, or it is damaged: {error}.") from error
        self._read(content, kind)

    def _read(self, content: Mapping[str, Any], kind: str) -> None:
        self._content = content
        self._state_names: Sequence[str] = content.get("state_names", ())
        self._limits = _Limits(1.0, math.inf, 0.0)
        self.columns: tuple[Measurement, ...] = ()
        if kind in (ON_STATES, ASSISTED_ON_STATES):
            self._num_states = len(content["steps"][0] if kind == ON_STATES else content["advice"])
            self._choose: Callable[..., _Choice] = (
                self._choose_by_step if kind == ON_STATES else self._choose_in_a_state
            )
            kept = content
        else:
            self.columns = tuple(_column(one) for one in content["columns"])
            self._choose, kept = self._choose_on_measurements, content.get("assistance", {})
        self.is_assisted, self.is_withheld = kind in (ASSISTED, ASSISTED_ON_STATES), False
        self._horizon: float = kept.get("horizon", math.inf)
        if self.is_assisted:
            limits = (float(kept[name]) for name in ("max_ratio", "max_weight", "least_support"))
            self._limits = _Limits(*limits)
            strengths = kept.get("strength", [1.0] * len(kept["support"]))
            cells = zip(kept["support"], strengths, strict=True)
            self.is_withheld = not any(b >= self._limits.least_support and g > 0.0 for b, g in cells)
        self.num_actions = len(content["advantages"]) if self.columns else whole_number(content.get("num_actions"))
        self.rules = Rules.from_json(content.get("rules", ()), self.num_actions or 0)

    @classmethod
    def load(cls, path: str | Path) -> "ExportedPolicy":
        """Read a `policy.json`. Verify it first with the certificate next to it: see `privrl certify`."""
        return cls(json.loads(Path(path).read_text(encoding="utf-8")))

    def __call__(self, observation: Observation) -> int:
        """The action for one observation, or -1 if the decision is left to the clinician; `advise` says more."""
        return int(self.advise(observation))

    def advise(self, observation: Observation, *, step: int = 0, previous: int | None = None) -> Advice:
        """The policy's advice for one observation, without a random draw.

        An assisted policy gives its advice with `probability` only, so without a draw it has no `action` ("not drawn")
        unless this is 1: use `start_episode`, or `decide` with a draw. Without `step`, the decision is the first one of
        an episode.

        Arguments:
            observation: a mapping from names to values, in which a category is its text and a missing value is `None`
                or left out; numbers in the order of the columns, with NaN for missing values; or a state.
            step: the number of earlier decisions.
            previous: the action that was taken at the last decision.

        Raises:
            ValueError: a name, a category or a state is unknown, or a value is not a number.
        """
        return self.decide(observation, EpisodeState(step, 1.0, previous))

    def decide(self, observation: Observation, state: EpisodeState, draw: float | None = None) -> Advice:
        """The advice for one decision of an episode.

        Arguments:
            observation: as in `advise`.
            state: what was kept from the decision before; `EpisodeState()` at the first one.
            draw: a random number in [0, 1), a new one for every decision. `None`: the most probable choice, and no
                advice that is not certain.
        """
        if draw is not None and not 0.0 <= draw < 1.0:
            raise ValueError(f"`draw` is {draw}; it must lie in [0, 1).")
        state = self._check_episode(state)
        chosen = self._choose(observation, state, draw)
        if self.is_withheld:
            return Advice(None, "withheld", chosen.unusual, 0.0, None, 1.0, 1.0)
        if chosen.action is None:
            return Advice(None, chosen.reason, chosen.unusual, 0.0, None, 1.0, 1.0)
        if not self.is_assisted:
            return Advice(chosen.action, "", chosen.unusual, 1.0, chosen.action, 1.0, 1.0)
        ratio = self._limits.ratio_at(state.weight)
        alpha, if_taken, otherwise = self._limits.weigh(chosen.support, chosen.strength, ratio)
        given = alpha == 1.0 if draw is None else draw < alpha
        reason: LeftBecause = "" if given else "not drawn"
        if alpha == 0.0:
            reason = self._limits.explain(chosen.support, ratio)
        action = None if reason else chosen.action
        return Advice(action, reason, chosen.unusual, alpha, chosen.action, if_taken, otherwise)

    def record(self, state: EpisodeState, advice: Advice, action: int) -> EpisodeState:
        """What is kept for the next decision, after `action` was taken, by advice or by the clinician."""
        state, action = self._check_episode(state), self._check_action(action, "`action`")
        factor = advice.if_taken if action == advice.choice else advice.otherwise
        weight = min(state.weight * factor, self._limits.max_weight, LARGEST_WEIGHT)
        return EpisodeState(state.step + 1, weight, action)

    def start_episode(self, state: EpisodeState | None = None, *, draw: Callable[[], float] | None = None) -> "Episode":
        """Advise in one episode, decision by decision.

        Arguments:
            state: to continue an episode: its `state` so far.
            draw: gives random numbers in [0, 1). By default the operating system supplies them.
        """
        return Episode(self, state or EpisodeState(), draw or random_draw)

    def _check_episode(self, state: EpisodeState) -> EpisodeState:
        """Refuse a state of which a part was lost, such as a weight that JSON has turned into null."""
        step, largest = whole_number(state.step), min(self._limits.max_weight, LARGEST_WEIGHT)
        if step is None or step < 0 or not is_number(state.weight, 0.0, largest):
            raise ValueError(
                f"The state of an episode must have a `step` that is a whole number from 0 and a `weight` from 0 to "
                f"{largest:g}. This one does not, so the episode cannot be continued with advice. Leave the rest of it "
                "to the clinician."
            )
        previous = None if state.previous is None else self._check_action(state.previous, "`previous`")
        return EpisodeState(step, state.weight, previous)

    def _check_action(self, action: object, what: str) -> int:
        number = whole_number(action)
        if number is None or not 0 <= number < (self.num_actions or math.inf):
            allowed = "not below 0" if self.num_actions is None else f"in [0, {self.num_actions})"
            raise ValueError(f"{what} must be a whole number {allowed}: an action.")
        return number

    def _choose_by_step(self, observation: object, state: EpisodeState, draw: float | None) -> "_Choice":
        at, steps = read_state(observation, self._num_states, self._state_names), self._content["steps"]
        if state.step >= self._horizon:
            return _Choice(None, reason="past the horizon")
        found = steps[state.step if len(steps) > 1 else 0][at]
        choice = _draw(found, draw) if isinstance(found, Sequence) else int(found)
        return self._unless_forbidden(_Choice(choice), at, state)

    def _choose_in_a_state(self, observation: object, state: EpisodeState, draw: float | None) -> "_Choice":
        at = read_state(observation, self._num_states, self._state_names)
        if state.step >= self._horizon:
            return _Choice(None, reason="past the horizon")
        advice, support, strength = (self._content[name][at] for name in ("advice", "support", "strength"))
        return self._unless_forbidden(_Choice(int(advice), support, strength=strength), at, state)

    def _unless_forbidden(self, found: "_Choice", at: int, state: EpisodeState) -> "_Choice":
        if self.rules and not self.rules.allowed({STATE: float(at)}, state.previous)[found.action or 0]:
            return _Choice(None, reason="rules")
        return found

    def _choose_on_measurements(self, observation: Any, state: EpisodeState, draw: float | None) -> "_Choice":
        values, unusual = read_row(self.columns, observation)
        if state.step >= self._horizon:
            return _Choice(None, unusual=unusual, reason="past the horizon")
        row = {column.name: value for column, value in zip(self.columns, values, strict=True)}
        content, phi = self._content, self._features(row)
        likely = [
            _clip(_dot(phi, weights), _LEAST_PROBABILITY, 1.0) for weights in zip(*content["practice"], strict=True)
        ]
        gains = [_dot(phi, theta) for theta in content["advantages"]]
        allowed = self.rules.allowed(row, state.previous) if self.rules else [True] * len(gains)
        if not any(allowed):
            return _Choice(None, unusual=unusual, reason="rules")
        least = content["support"] * max(p for p, may in zip(likely, allowed, strict=True) if may)
        scores = [
            gain + content["anchor"] * math.log(p) if may and p >= least else -math.inf
            for gain, p, may in zip(gains, likely, allowed, strict=True)
        ]
        best = scores.index(max(scores))
        if not self.is_assisted:
            return _Choice(best, unusual=unusual)
        kept = content["assistance"]
        place = bisect_right(kept["probability_edges"], likely[best] / sum(likely))
        place = (place * len(gains) + best) * len(gains) + likely.index(max(likely))
        ahead, unit = gains[best] - _dot(likely, gains) / sum(likely), kept["advantage_unit"]
        strength = _clip(ahead / unit, 0.0, 1.0) if unit > 0.0 else 1.0
        return _Choice(best, kept["support"][place], unusual, strength=strength)

    def _features(self, row: Mapping[str, float]) -> list[float]:
        terms, u, gone = self._content["terms"], {}, {}
        columns: dict[str, Any] = {column.name: column for column in self.columns}
        for name, centre, width in zip(
            terms["measurements"], self._content["centre"], self._content["half_width"], strict=True
        ):
            position = _position(columns[name], row[name])
            gone[name] = float(math.isnan(position))
            u[name] = _clip((position - centre) / width, -_REACH, _REACH, nan=0.0)
        phi = [_HALF, *u.values(), *(v * v - _HALF for v in u.values()), *(u[a] * u[b] for a, b in terms["products"])]
        phi += [_HALF * gone[name] for name in terms["missing"]]
        for name in terms["categories"]:
            phi += [_HALF * (row[name] == k) for k in range(len(columns[name].values))]
        return phi


class Episode:
    """One episode under a policy: call `advise` before and `record` after every decision.

    Attributes:
        state: what is kept between decisions; store it to continue later with `start_episode(state)`.
    """

    def __init__(self, policy: ExportedPolicy, state: EpisodeState, draw: Callable[[], float]) -> None:
        self._policy, self._draw, self.state = policy, draw, state
        self._advice: Advice | None = None

    @property
    def weight(self) -> float:
        """The running weight."""
        return self.state.weight

    def advise(self, observation: Observation) -> Advice:
        """The advice for the next decision, with a random draw."""
        self._advice = self._policy.decide(observation, self.state, self._draw())
        return self._advice

    def record(self, action: int) -> None:
        """Record the action that was taken, by advice or by the clinician."""
        if self._advice is None:
            raise ValueError("`record` was called without `advise`. Call `advise(observation)` before every decision.")
        self.state = self._policy.record(self.state, self._advice, action)
        self._advice = None


def random_draw() -> float:
    """A random number in [0, 1) from the operating system: 53 bits."""
    return secrets.randbits(53) / 2.0**53


@dataclass(frozen=True)
class _Choice:
    action: int | None
    support: float = 1.0
    unusual: tuple[Unusual, ...] = ()
    reason: LeftBecause = ""
    strength: float = 1.0


@dataclass(frozen=True)
class _Limits:
    """How often an assisted policy gives its advice, see `assistance.py`."""

    max_ratio: float
    max_weight: float
    least_support: float

    def ratio_at(self, weight: float) -> float:
        """How many times as often as in practice the advice may be taken at this running weight."""
        left = self.max_weight / weight if weight > 0.0 and self.max_weight < math.inf else math.inf
        return min(max(left, 1.0), self.max_ratio)

    def explain(self, support: float, ratio: float) -> LeftBecause:
        """Why advice is never given at a decision."""
        if not ratio > 1.0 and self.max_ratio != 1.0:
            return "weight reached"
        return "no advantage" if support >= self.least_support and ratio > 1.0 else "too little support"

    def weigh(self, support: float, strength: float, ratio: float) -> tuple[float, float, float]:
        """alpha, and the factor of the running weight if the advice is taken and if it is not."""
        if strength > 0.0:
            ratio = 1.0 + min(strength, 1.0) * (ratio - 1.0)
        if not (support >= self.least_support and strength > 0.0 and ratio > 1.0):
            return 0.0, 1.0, 1.0
        alpha = min((ratio - 1.0) * support / (1.0 - support), 1.0) if support < 1.0 else 1.0
        return alpha, min(1.0 - alpha + alpha / min(support, 1.0), ratio), 1.0 - alpha


def _column(content: Mapping[str, Any]) -> Measurement:
    if content["kind"] == "category":
        return Category(content["name"], content["values"], content["missing"])
    return Feature(*(content[part] for part in ("name", "low", "high", "missing", "log")))


def _position(column: Any, value: float) -> float:
    """The position of a measurement between its bounds, in [-1, 1]; NaN if it is missing."""
    if math.isnan(value):
        return value
    value, low, high = min(max(value, column.low), column.high), column.low, column.high
    if column.log:
        value, low, high = math.log(value), math.log(low), math.log(high)
    return 2.0 * (value - low) / (high - low) - 1.0


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(left, right, strict=True))


def _clip(x: float, low: float, high: float, nan: float | None = None) -> float:
    """Clip a number; one that is not a number becomes `nan`, or `low`."""
    return min(max(x, low), high) if x == x else low if nan is None else nan


def _draw(chances: Sequence[Sequence[float]], draw: float | None) -> int:
    """The action at which the sum of the probabilities passes `draw` times their total; without a draw, the most
    probable one."""
    if draw is None:
        return int(max(chances, key=lambda one: one[1])[0])
    left = draw * sum(chance for _, chance in chances)
    for action, chance in chances:
        left -= chance
        if left < 0.0:
            return int(action)
    return int(chances[-1][0])
