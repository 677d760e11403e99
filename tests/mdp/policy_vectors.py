"""Test vectors of `policy.json`: what a reader in any language must make of a policy, observations and draws.

`PYTHONPATH=tests python -m mdp.policy_vectors` prints the file `client/policy-vectors.json`. Each entry has a policy,
episodes under it, longer than its horizon, and observations that a reader must refuse. A step of an episode has an
observation, a draw (`null`: none), the advice, the action that was taken afterwards, and the state for the next step.
"""

import json
import random
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import privrl
from privrl.mdp.exported_policy import ExportedPolicy

VECTORS = Path(privrl.__file__).parent / "service" / "client" / "policy-vectors.json"

_COLUMNS = [
    {"kind": "feature", "name": "map", "low": 30.0, "high": 130.0, "missing": True, "log": False},
    {"kind": "category", "name": "ward", "values": ["icu", "step-down", "1", "true"], "missing": True},
    {"kind": "feature", "name": "lactate", "low": 0.1, "high": 20.0, "missing": False, "log": True},
]
_TERMS = {
    "measurements": ["lactate", "map"],
    "products": [["lactate", "map"]],
    "missing": ["map"],
    "categories": ["ward"],
}
_RULES = [
    {"text": "if map < 60 then action <= 1", "if": [{"column": "map", "test": "<", "bound": 60.0}],
     "allowed": [[0, 1]]},
    {
        "text": "if ward is icu, map is known then action >= previous - 1",
        "if": [{"column": "ward", "test": "in", "values": [0]}, {"column": "map", "test": "known"}],
        "allowed": [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3], [1, 2, 3], [2, 3]],
    },
    {"text": "if lactate is missing then action is not 3", "if": [{"column": "lactate", "test": "missing"}],
     "allowed": [[0, 1, 2]]},
]  # fmt: skip
_STATE_RULES = [
    {"text": "action <= previous + 1", "if": [], "allowed": [[0, 1, 2], [0, 1], [0, 1, 2], [0, 1, 2]]},
    {"text": "if state in 1 then action is not 2", "if": [{"column": "state", "test": "in", "values": [1]}],
     "allowed": [[0, 1]]},
]  # fmt: skip
_MEASURED_MISTAKES: list[Any] = [
    {"mapp": 60.0}, {"map": "60"}, {"map": True}, {"map": [60]}, {"ward": "ICU"}, {"ward": 1.5}, {"ward": 0},
    {"map": 60.0, "constructor": 1}, [60.0, 1], [60.0, 4, 1.0], [60.0, 0.5, 1.0], [60.0, "icu", 1.0], ["60", 0, 1.0],
    "map", 60, None,
]  # fmt: skip
_STATE_MISTAKES: list[Any] = [4, -1, 0.5, "nowhere", "twice", {"state": 9}, {"states": 1}, {}, None, True, [1]]


def _measured(rng: random.Random) -> dict[str, Any]:
    d, A = 1 + 2 * 2 + 1 + 1 + 4, 4
    numbers = lambda rows, columns: [  # noqa: E731
        [round(rng.uniform(-1.0, 1.0), 3) for _ in range(columns)] for _ in range(rows)
    ]
    return {
        "kind": "privrl policy on measurements, 1",
        "columns": _COLUMNS,
        "terms": _TERMS,
        "all_products": True,
        "centre": [-0.2, 0.1],
        "half_width": [0.5, 0.25],
        "advantages": numbers(A, d),
        "practice": numbers(d, A),
        "anchor": 0.05,
        "support": 0.1,
        "action_names": ["none", "low", "middle", "high"],
    }


def _policies(rng: random.Random) -> list[tuple[dict[str, Any], list[Any]]]:
    steps: list[Any] = [
        [0, [[0, 0.25], [1, 0.5], [2, 0.25]], 2, 1],
        [2, 1, [[1, 0.5], [2, 0.5]], 0],
    ]
    names = ["twice", "here", "there", "twice"]
    on_states = {"kind": "privrl policy on states, 1", "num_actions": 3, "horizon": 3, "steps": steps[:1]}
    by_step = {**on_states, "horizon": 2, "steps": steps, "state_names": names}
    assisted_on_states = {
        "kind": "privrl assisted policy on states, 1",
        "horizon": 4,
        "advice": [2, 0, 1, 2],
        "support": [0.5, 0.04, 0.2, 1.0],
        "strength": [1.0, 1.0, 0.6, 1.0],
        "max_ratio": 1.5,
        "max_weight": 2.0,
        "least_support": 0.05,
    }
    measured = _measured(rng)
    assistance = {
        "horizon": 4,
        "values": [round(rng.uniform(-1.0, 1.0), 3) for _ in range(11)],
        "support": [round(min(max(rng.uniform(-0.2, 1.1), 0.0), 1.0), 3) for _ in range(112)],
        "max_ratio": 2.0,
        "max_weight": 3.0,
        "probability_edges": [0.1, 0.16, 0.24, 0.34, 0.48, 0.65],
        "least_support": 0.05,
        "advantage_unit": 1.5,
    }
    assisted = {**measured, "kind": "privrl assisted policy on measurements, 1", "assistance": assistance}
    without_limits = {**assisted_on_states, "strength": [0.5, 1, 0, 1], "max_ratio": "inf", "max_weight": "inf"}
    ruled = {**assisted_on_states, "num_actions": 3, "rules": _STATE_RULES, "state_names": names}
    withheld_in_states = {**ruled, "support": [0, 0.0, 0.9, 0.04], "strength": [1.0, 1.0, 0.0, 1.0]}
    withheld = {**assisted, "assistance": {**assistance, "support": [0.0] * 112}}
    return [
        (on_states, _STATE_MISTAKES),
        (by_step, _STATE_MISTAKES),
        ({**on_states, "rules": _STATE_RULES}, _STATE_MISTAKES),
        (assisted_on_states, _STATE_MISTAKES),
        (without_limits, _STATE_MISTAKES),
        (ruled, _STATE_MISTAKES),
        (measured, _MEASURED_MISTAKES),
        ({**measured, "rules": _RULES}, _MEASURED_MISTAKES),
        (assisted, _MEASURED_MISTAKES),
        ({**assisted, "rules": _RULES}, _MEASURED_MISTAKES),
        (withheld_in_states, _STATE_MISTAKES),
        ({**withheld, "rules": _RULES}, _MEASURED_MISTAKES),
    ]


def _observation(policy: dict[str, Any], rng: random.Random) -> Any:
    if "columns" not in policy:
        states = [0, 1, 2, 3, {"state": 2}, *(["here", {"state": "there"}] if "state_names" in policy else [])]
        return states[int(rng.random() * len(states))]
    values: dict[str, Any] = {
        "map": round(rng.uniform(20.0, 140.0), 1),
        "ward": ["icu", "step-down", 1, True][int(rng.random() * 4)],
        "lactate": round(rng.uniform(0.05, 22.0), 2),
    }
    if rng.random() < 0.2:  # in order, with the position of the category
        return [values["map"], int(rng.random() * 4), None if rng.random() < 0.2 else values["lactate"]]
    return {name: value if rng.random() > 0.1 else None for name, value in values.items() if rng.random() > 0.1}


def _episode(policy: dict[str, Any], rng: random.Random, steps: int) -> list[dict[str, Any]]:
    reader, state, found = ExportedPolicy(policy), None, []
    for _ in range(steps):
        episode = reader.start_episode(state)
        observation = _observation(policy, rng)
        draw = None if rng.random() < 0.1 else int(rng.random() * 2**20) / 2**20
        advice = reader.decide(observation, episode.state, draw)
        taken = advice.choice if rng.random() < 0.7 and advice.choice is not None else int(rng.random() * 3)
        state = reader.record(episode.state, advice, taken)
        found.append(
            {
                "observation": observation,
                "draw": draw,
                "advice": {**asdict(advice), "unusual": [asdict(one) for one in advice.unusual]},
                "taken": taken,
                "state": asdict(state),
            }
        )
    return found


def vectors(seed: int = 20) -> list[dict[str, Any]]:
    """All vectors, as JSON; other seeds have other policies and episodes."""
    rng = random.Random(seed)
    return [
        {"policy": policy, "episodes": [_episode(policy, rng, 5) for _ in range(6)], "refused": mistakes}
        for policy, mistakes in _policies(rng)
    ]


def text_of(content: list[dict[str, Any]]) -> str:
    """The file."""
    return json.dumps(content, separators=(",", ":")).replace('{"policy"', '\n{"policy"') + "\n"


if __name__ == "__main__":
    sys.stdout.write(text_of(vectors()))
