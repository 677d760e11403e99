"""A small table of stays that the tests of the data layer share."""

from typing import Any

COLUMNS = {
    "unit": "patient",
    "episode": "stay",
    "step": "hour",
    "state": "ward",
    "action": "drug",
    "reward": "gain",
}
BOUNDS: dict[str, Any] = {"horizon": 4, "num_states": 5, "num_actions": 3}


def good_rows() -> dict[str, list[Any]]:
    """Two patients, three stays, seven rows; steps start where they like."""
    return {
        "patient": ["ann", "ann", "ann", "ann", "bob", "bob", "bob"],
        "stay": [10, 10, 11, 11, 12, 12, 12],
        "hour": [0, 1, 5, 6, -1, 0, 1],
        "ward": [0, 1, 2, 3, 4, 0, 1],
        "drug": [0, 1, 2, 0, 1, 2, 0],
        "gain": [0.0, 1.0, 0.5, 0.25, 0.0, 0.0, 1.0],
    }
