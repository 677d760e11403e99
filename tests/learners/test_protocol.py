"""Protocols of pilots: files, hashes, and what is refused."""

import dataclasses

import numpy as np
import pytest

from privrl import Arm, Outcome, Protocol
from privrl.learners.trials.protocol import Partition, Phase

PILOT = Protocol(
    "pilot",
    1_000,
    (Arm("practice"), Arm("advice", "policy", sha256="ab"), Arm("assisted", "policy", "assisted")),
    Outcome("survival"),
    epsilon=1,
    delta=1e-6,
    looks=(100, 400, 1_000),
    phases=(Phase(1, (0.8, 0.1, 0.1)), Phase(2, (0.5, 0.25, 0.25))),
    secondary=(Outcome("days — ICU", 0, 30, 30, share=0.1),),
    subgroups=(Partition("sex", ("f", "m"), 0.1), Partition("age", ("old", "young"), 0.2)),
)


def test_a_refusal_is_stated_once():
    for content in ({"groups": ["a"]}, {"share": "a"}, {"names": []}):
        part = {"name": "sex", "groups": ["f", "m"], "share": 0.1} | content
        with pytest.raises(ValueError) as error:
            Protocol.from_json(PILOT.to_json() | {"subgroups": [part]})
        assert str(error.value).count("refused") == 1


def test_files_keep_every_value_and_the_hash():
    again = Protocol.from_toml(PILOT.to_toml() + "\n[serve]\nstore = 'x.db'\n")
    assert again == PILOT and again.sha256 == PILOT.sha256 and Protocol.from_json(PILOT.to_json()) == PILOT
    assert np.array_equal(again.ends, [100, 400, 1_000]) and np.array_equal(again.phase_of, [0, 1, 1])
    assert np.allclose(again.shares.sum(axis=1), 1)


@pytest.mark.parametrize(
    "change",
    [
        {"people": 2_000, "looks": (100, 400, 2_000)},
        {"epsilon": 1.1},
        {"arms": (PILOT.arms[0], dataclasses.replace(PILOT.arms[1], sha256="ac"), PILOT.arms[2])},
        {"after_better": "practice"},
        {"outcome": Outcome("survival", missing=1.0)},
        {"worse": 0.04},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_change_changes_the_hash(change):
    assert dataclasses.replace(PILOT, **change).sha256 != PILOT.sha256


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"name": "A pilot"}, "`name`"),
        ({"people": 1}, "`people`"),
        ({"arms": PILOT.arms[:1]}, "`arms`"),
        ({"arms": (Arm("a", "policy"), Arm("b"), Arm("c"))}, "current practice"),
        ({"arms": (Arm("a"), Arm("a"), Arm("c"))}, "different names"),
        ({"arms": (Arm("a"), Arm("b", "policy", file="b.json"), Arm("c"))}, "belong together"),
        ({"arms": (Arm("a"), Arm("b", file="b.json", file_sha256="ab"), Arm("c"))}, "and to a `policy`"),
        ({"looks": (100, 100, 1_000)}, "ends of blocks"),
        ({"looks": (100, 900)}, "ends of blocks"),
        ({"better": 0.0}, "`better`"),
        ({"epsilon": 0.0}, "`epsilon`"),
        ({"delta": 1.0}, "`delta`"),
        ({"patience": 0.0}, "`patience`"),
        ({"outcome": Outcome("survival", 1, 1)}, "bounds of outcome"),
        ({"outcome": Outcome("survival", missing=2)}, "`missing`"),
        ({"outcome": Outcome("sex")}, "different names"),
        ({"secondary": (Outcome("survival by sex", share=0.1),)}, "may not be called"),
        ({"subgroups": (Partition("all", ("f", "m"), 0.1),)}, "may not be called"),
        ({"secondary": (Outcome("days", 0, 30),)}, "`share`"),
        ({"subgroups": (Partition("sex", ("f",), 0.1),)}, "`groups`"),
        ({"subgroups": (Partition("sex", ("f", "m"), 0.9),)}, "`share`"),
        ({"phases": (Phase(2, (0.5, 0.25, 0.25)),)}, "`start`"),
        ({"phases": (Phase(1, (0.5, 0.5, 0.0)),)}, "`shares`"),
    ],
    ids=lambda value: str(value)[:25],
)
def test_refused(change, problem):
    with pytest.raises(ValueError, match=problem):
        dataclasses.replace(PILOT, **change)


def test_unknown_entries_and_groups_are_refused():
    with pytest.raises(ValueError, match="unknown entry `epsilom`"):
        Protocol.from_toml(PILOT.to_toml().replace("epsilon", "epsilom"))
    with pytest.raises(ValueError, match="unknown entry `polcy` in `arms`"):
        Protocol.from_toml(PILOT.to_toml().replace("policy =", "polcy ="))
    with pytest.raises(ValueError, match="not TOML"):
        Protocol.from_toml("= 3")
    assert PILOT.cells_of("m/old") == (1, 0)
    for group in ("", "m", "old/m", "m/old/x"):
        with pytest.raises(ValueError, match="one group of each partition"):
            PILOT.cells_of(group)
