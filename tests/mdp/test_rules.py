"""Rules on actions: how they are read, what they allow, and that no decision of a policy breaks them."""

import dataclasses
import itertools
import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privrl.data.prepare.grid import GridColumn, StateGrid
from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.assisted_measured import AssistedMeasuredPolicy, count_cells
from privrl.mdp.exported_policy import EpisodeState, ExportedPolicy
from privrl.mdp.measured_policy import MeasuredPolicy
from privrl.mdp.measurements import BinnedAction, Category, Feature
from privrl.mdp.quadratic_features import QuadraticFeatures
from privrl.mdp.rule_file import Vocabulary, read_rules
from privrl.mdp.rules import NO_ACTION, ActionRule, Condition, Rules, rules_array, rules_from_arrays

COLUMNS = (Feature("map", 30, 130, missing=True), Category("ward", ("icu", "step-down", "home")), Feature("age", 0, 99))
WORDS = Vocabulary(4, COLUMNS, action_names=("none", "low", "middle", "high"))
DOSES = (BinnedAction("fluid", (0, 250)), BinnedAction("norepinephrine", (0, 0.001, 0.05)))
NAMES = [column.name for column in COLUMNS]
GRID = (
    "map < 65, ward icu",
    "map < 65, ward home",
    "65 <= map < 78, ward icu",
    "65 <= map < 78, ward home",
    "map >= 78, ward icu",
    "map >= 78, ward home",
    "map missing, ward icu",
    "ended",
)


# ------------------------------------------------------------------------------------------------------ reading


@pytest.mark.parametrize(
    ("when", "then", "row", "previous", "allowed"),
    [
        ("map < 60", "action <= 1", {"map": 59.9}, None, {0, 1}),
        ("map < 60", "action <= 1", {"map": 60.0}, None, {0, 1, 2, 3}),
        ("map <= 60", "action <= 1", {"map": 60.0}, None, {0, 1}),
        ("map < 60", "action <= 1", {}, None, {0, 1}),  # missing: the rule applies
        (["map < 60", "map is known"], "action <= 1", {}, None, {0, 1, 2, 3}),
        ("map is missing", "action is none", {}, None, {0}),
        ("map is missing", "action is none", {"map": 60.0}, None, {0, 1, 2, 3}),
        ("ward is icu", "action is not high", {"ward": 0.0}, None, {0, 1, 2}),
        ("ward is not icu", "action is not high", {"ward": 0.0}, None, {0, 1, 2, 3}),
        ("ward in icu, home", "action in 1, 2", {"ward": 2.0}, None, {1, 2}),
        ("ward not in icu, home", "action not in 1, 2", {"ward": 1.0}, None, {0, 3}),
        (["ward is icu", "map>=60"], ["action > 0", "action<3"], {"map": 60.0, "ward": 0.0}, None, {1, 2}),
        (["ward is icu", "map>=60"], ["action > 0", "action<3"], {"map": 60.0, "ward": 1.0}, None, {0, 1, 2, 3}),
        ([], "action <= previous + 1", {}, None, {0, 1, 2, 3}),
        ([], "action <= previous + 1", {}, 0, {0, 1}),
        ([], ["action <= previous + 1", "action >= previous - 1"], {}, 2, {1, 2, 3}),
        ([], ["action <= previous", "action < high"], {}, None, {0, 1, 2}),
        ("previous >= 2", "action >= 1", {}, 2, {1, 2, 3}),
        ("previous >= 2", "action >= 1", {}, 1, {0, 1, 2, 3}),
        ("previous is high", "action is not 0", {}, None, {0, 1, 2, 3}),
    ],
)
def test_a_rule_allows_what_it_says(when: Any, then: Any, row: Any, previous: int | None, allowed: set[int]) -> None:
    rules = read_rules([{"if": when, "then": then}], WORDS)
    values = {**dict.fromkeys(NAMES, math.nan), **row}
    assert {a for a, may in enumerate(rules.allowed(values, previous)) if may} == allowed
    rows = np.array([values[name] for name in NAMES])
    before = np.array(NO_ACTION if previous is None else previous)
    assert set(np.flatnonzero(rules.mask(NAMES, rows, before))) == allowed


def test_rules_on_doses_are_at_edges_and_in_levels() -> None:
    words = Vocabulary(6, COLUMNS, doses=DOSES)  # fluid 0, fluid 0, fluid 0, fluid 1, ...
    found = read_rules([{"then": ["norepinephrine < 0.05", "fluid >= 250"]}], words)
    assert found.rules[0].allowed == ((3, 4),)
    found = read_rules([{"if": "previous norepinephrine >= 0.001", "then": "fluid is 0"}], words)
    assert found.rules[0].allowed == (tuple(range(6)), tuple(range(6)), (0, 1, 2), (0, 1, 2)) + (
        tuple(range(6)), (0, 1, 2), (0, 1, 2))  # fmt: skip
    found = read_rules([{"then": "norepinephrine <= previous + 1"}], words)
    assert found.rules[0].allowed[1] == (0, 1, 3, 4) and found.rules[0].allowed[2] == tuple(range(6))


def test_rules_on_states_take_numbers_names_and_the_columns_of_a_grid() -> None:
    words = Vocabulary(3, num_states=8, state_names=GRID)

    def forbidden(when: Any) -> list[int]:
        table = read_rules([{"if": when, "then": "action < 2"}], words).state_table(8)
        assert table[:, :2].all()
        return np.flatnonzero(~table[:, 2]).tolist()

    assert forbidden("state in 1, 4") == [1, 4]
    assert forbidden("state is ended") == [7]
    assert forbidden("state >= 6") == [6, 7]
    assert forbidden("map < 78") == [0, 1, 2, 3, 6]  # missing: the rule applies
    assert forbidden(["map < 78", "map is known"]) == [0, 1, 2, 3]
    assert forbidden(["map >= 65", "ward is icu"]) == [2, 4, 6]
    assert forbidden("map is missing") == [6]
    assert forbidden("ward is not icu") == [1, 3, 5]
    with pytest.raises(ValueError, match="at an edge of its grid"):
        forbidden("map < 70")
    with pytest.raises(ValueError, match="`lactate` is not in the names of the states"):
        forbidden("lactate < 2")


def test_rules_read_the_names_of_a_prepared_grid() -> None:
    columns = (
        GridColumn("mean map", (65.0, 78.5), missing=True),
        GridColumn("ward", values=("icu", "step down")),
        GridColumn("lactate", (2.0,)),
    )
    grid = StateGrid(columns, ends=True)
    words = Vocabulary(2, num_states=len(grid.names), state_names=grid.names)
    when = ["mean map < 78.5", "ward is step down", "lactate >= 2"]
    table = read_rules([{"if": when, "then": "action is 0"}], words).state_table(len(grid.names))
    held = [
        m in (0, 1, 3) and w == 1 and x == 1 for m, w, x in itertools.product(range(4), range(2), range(2))
    ]  # the last interval of `mean map` is a missing value
    np.testing.assert_array_equal(~table[:, 1], [*held, False])
    for wrong in ("ward is garden", "mean map < 70", "ward < 2"):
        with pytest.raises(ValueError, match="in the names of the states|at an edge of its grid"):
            read_rules([{"if": wrong, "then": "action is 0"}], words)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"if": "mapp < 60", "then": "action <= 1"}, "`mapp` is not a declared column. The columns are map, ward, age"),
        ({"if": "map < 20", "then": "action <= 1"}, "20 does not lie between the bounds 30 and 130 of `map`"),
        ({"if": "map < low", "then": "action <= 1"}, "`low` is not a number"),
        ({"if": "map is 60", "then": "action <= 1"}, "compare it with <"),
        ({"if": "ward < 1", "then": "action <= 1"}, "`ward` is a category; write `ward is icu`"),
        ({"if": "ward is garden", "then": "action <= 1"}, "`garden` is not one of the values of `ward`"),
        ({"if": "map", "then": "action <= 1"}, "`map` is not a condition"),
        ({"then": "action <= 4"}, "`4` is not action 0 to 3, nor the name of one"),
        ({"then": "dose <= 1"}, "`dose` is not an action. Write about action"),
        ({"then": "action is missing"}, "An action is always known"),
        ({"then": []}, "Rule 1 has no limit"),
        ({"if": "map < 60"}, "Rule 1 must have `then`"),
        ({"when": "map < 60", "then": "action <= 1"}, "and nothing else"),
        ({"if": 3, "then": "action <= 1"}, "`if` of rule 1 must be text"),
        ({"then": "action < 0"}, "leave no action"),
        ({"then": "action < previous"}, "leave no action after action 0"),
    ],
)
def test_a_rule_that_cannot_be_kept_is_refused(entry: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_rules([entry], WORDS)


def test_edges_of_doses_are_exact() -> None:
    words = Vocabulary(6, COLUMNS, doses=DOSES)
    for then, why in (("norepinephrine < 0.04", "0.04 is not an edge"), ("fluid <= 250", "compare it with < or >=")):
        with pytest.raises(ValueError, match=why):
            read_rules([{"then": then}], words)


def test_rules_are_read_from_toml_and_written_in_three_forms(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[rule]]\nif = "map < 60"\nthen = "action <= 2"\n\n[[rule]]\nthen = "action <= previous + 1"\n')
    rules = read_rules(path, WORDS)
    assert rules.texts == ["if map < 60 then action <= 2", "always action <= previous + 1"] and rules.need_previous
    assert Rules.from_json(json.loads(json.dumps(rules.to_json())), 4) == rules
    assert rules_from_arrays(rules_array(rules)) == rules and rules_array(Rules()) == {}
    assert read_rules(rules, WORDS) == rules
    for text, why in (("rule = 3", "at least one rule"), ("[rules]", "nothing else"), ("if =", "not a TOML file")):
        path.write_text(text)
        with pytest.raises(ValueError, match=why):
            read_rules(path, WORDS)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="not a text file"):
        read_rules(path, WORDS)
    with pytest.raises(ValueError, match="for 4 actions, and there are 3"):
        read_rules(rules, Vocabulary(3, COLUMNS))


# ------------------------------------------------------------------------------------------ every observation

_CONDITIONS = st.one_of(
    st.builds(Condition, st.just("map"), st.sampled_from(["<", "<=", ">", ">="]), st.sampled_from([50.0, 60.0, 90.0])),
    st.builds(Condition, st.just("age"), st.sampled_from(["<", ">="]), st.sampled_from([20.0, 70.0])),
    st.builds(lambda v: Condition("ward", "in", values=tuple(sorted(v))), st.sets(st.integers(0, 2), min_size=1)),
    st.builds(Condition, st.sampled_from(NAMES), st.sampled_from(["known", "missing"])),
)
_ACTIONS = st.sets(st.integers(0, 3), min_size=1).map(lambda actions: tuple(sorted(actions)))
_RULE = st.builds(
    ActionRule,
    st.just("text"),
    st.lists(_CONDITIONS, max_size=3).map(tuple),
    st.one_of(_ACTIONS.map(lambda one: (one,)), st.lists(_ACTIONS, min_size=5, max_size=5).map(tuple)),
)
RULES = st.lists(_RULE, min_size=1, max_size=5).map(lambda rules: Rules(tuple(rules), 4))
EVERY = [
    dict(zip(NAMES, values, strict=True))
    for values in itertools.product(
        (30.0, 49.0, 50.0, 55.0, 60.0, 75.0, 90.0, 91.0, math.nan),
        (0.0, 1.0, 2.0, math.nan),
        (5.0, 20.0, 45.0, 70.0, 80.0, math.nan),
    )
]
BEFORE = [None, 0, 1, 2, 3]


@given(rules=RULES)
@settings(max_examples=60, deadline=None)
def test_rules_that_leave_no_action_are_refused_and_no_others(rules: Rules) -> None:
    left = all(any(rules.allowed(row, previous)) for row in EVERY for previous in BEFORE)
    if left:
        assert read_rules(rules, WORDS) is rules
    else:
        with pytest.raises(ValueError, match="leave no action"):
            read_rules(rules, WORDS)


@given(rules=RULES, seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_arrays_of_numpy_and_jax_say_the_same_as_one_row(rules: Rules, seed: int) -> None:
    rng = np.random.default_rng(seed)
    some = [EVERY[i] for i in rng.integers(0, len(EVERY), 12)]
    rows = np.array([[row[name] for name in NAMES] for row in some]).reshape(3, 4, 3)
    previous = rng.integers(-1, 4, (3, 4))
    one = [rules.allowed(row, None if a < 0 else int(a)) for row, a in zip(some, previous.ravel(), strict=True)]
    for library in (np.asarray, jnp.asarray):
        found = rules.mask(NAMES, library(rows), library(previous))
        np.testing.assert_array_equal(np.asarray(found).reshape(12, 4), one)
    without = Rules(tuple(rule for rule in rules.rules if not rule.needs_previous), 4)
    np.testing.assert_array_equal(rules.mask(NAMES, rows).reshape(12, 4), [without.allowed(row, None) for row in some])


def measured(rules: Rules, seed: int) -> MeasuredPolicy:
    rng = np.random.default_rng(seed)
    d = QuadraticFeatures.unscaled(COLUMNS).dim
    arrays = (np.zeros(2), np.ones(2), rng.normal(size=(4, d)), rng.normal(size=(d, 4)), np.array(0.1), np.array(0.3))
    return MeasuredPolicy(COLUMNS, None, *map(jnp.asarray, arrays), rules)


@given(rules=RULES, seed=st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_no_decision_of_a_policy_on_measurements_breaks_a_rule(rules: Rules, seed: int) -> None:
    """The policy, its reader, and the assisted policy, for every kind of observation after every action."""
    try:
        read_rules(rules, WORDS)
    except ValueError:
        return
    policy = measured(rules, seed)
    support = jnp.full(count_cells(policy.num_actions), 0.4)
    assisted = AssistedMeasuredPolicy(policy, jnp.zeros(policy.features.dim), support, 2.0, 4.0, horizon=100)
    readers = [ExportedPolicy(json.loads(json.dumps(one.to_json()))) for one in (policy, assisted)]
    rows = jnp.asarray([[row[name] for name in NAMES] for row in EVERY])
    for previous in BEFORE:
        before = jnp.full(len(EVERY), NO_ACTION if previous is None else previous)
        chosen, at = np.asarray(policy.choose(rows, before)), assisted.decisions(rows, before)
        np.testing.assert_array_equal(at.advice, chosen)
        for row, action in list(zip(EVERY, chosen, strict=True))[seed % 7 :: 7]:
            assert rules.allowed(row, previous)[action]
            for reader in readers:
                assert reader.advise([row[name] for name in NAMES], previous=previous).choice == action
    assert rules_from_arrays(MeasuredPolicy.from_arrays(policy.arrays()).arrays()) == rules
    assert AssistedMeasuredPolicy.from_arrays(assisted.arrays()).rules == rules


# ------------------------------------------------------------------------------------------ assisted, on states

STATE_RULES = read_rules(
    [{"then": "action <= previous + 1"}, {"if": "state is 1", "then": "action is not 2"}], Vocabulary(3, num_states=3)
)
ADVICE = AssistedPolicy(jnp.array([2, 2, 1]), jnp.array([0.3, 0.5, 0.2]), 3.0, 4.0, STATE_RULES, horizon=100)


def test_advice_that_a_rule_forbids_is_left_to_the_clinician() -> None:
    reader = ExportedPolicy(json.loads(json.dumps(ADVICE.to_json())))
    assert AssistedPolicy.from_json(ADVICE.to_json()).rules == STATE_RULES
    for state, previous in itertools.product(range(3), [None, 0, 1, 2]):
        advised = int(ADVICE.advice[state])
        allowed = STATE_RULES.allowed({"state": float(state)}, previous)[advised]
        found = reader.advise(state, previous=previous)
        assert (found.choice, found.reason != "rules") == ((advised, True) if allowed else (None, False))
        at = ADVICE.decisions(jnp.asarray(state), jnp.asarray(NO_ACTION if previous is None else previous))
        assert bool(at.supported) == allowed
    sure = dataclasses.replace(ADVICE, max_ratio=math.inf, max_weight=math.inf, support=jnp.ones(3))
    np.testing.assert_array_equal(sure(np.arange(3)), [2, -1, 1])


def test_weights_keep_the_mean_1_and_are_those_of_the_reader() -> None:
    """All episodes of three steps, with practice that takes the advice as often as its support says."""
    rng = np.random.default_rng(0)
    b = rng.dirichlet(np.ones(3), 3)
    for s in range(3):
        a, p = int(ADVICE.advice[s]), float(ADVICE.support[s])
        b[s] = np.where(np.arange(3) == a, p, b[s] * (1 - p) / (1 - b[s][a]))
    P = rng.dirichlet(np.ones(3), (3, 3))
    reader, total, with_rules = ExportedPolicy(json.loads(json.dumps(ADVICE.to_json()))), 0.0, 0.0
    weigh = jax.jit(lambda s, a: ADVICE.weigh(s, a, jnp.ones(3, bool)).last)
    for states in itertools.product(range(3), repeat=3):
        for actions in itertools.product(range(3), repeat=3):
            steps = list(zip(states, actions, strict=True))
            chance = np.prod([b[s][a] for s, a in steps]) / 3
            chance *= np.prod([P[s, a][after] for (s, a), after in zip(steps[:-1], states[1:], strict=True)])
            w, state = float(weigh(jnp.asarray(states), jnp.asarray(actions))), EpisodeState()
            for s, a in steps:
                state = reader.record(state, reader.decide(s, state, 0.5), a)
            assert state.weight == pytest.approx(w, abs=1e-12)
            total, with_rules = total + chance * w, with_rules + chance
    assert with_rules == pytest.approx(1.0) and total == pytest.approx(1.0, abs=1e-12)
