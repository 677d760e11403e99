"""Readers of `policy.json`, in Python and in JavaScript: the same advice for every observation, state and draw."""

import copy
import json
import math
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mdp.policy_vectors import VECTORS, text_of, vectors

import privrl
from privrl.contracts.untrusted import MALFORMED
from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.exported_policy import Advice, EpisodeState, ExportedPolicy
from privrl.mdp.types import TabularPolicy

READER = Path(privrl.__file__).parent / "service" / "client" / "privrl-policy.mjs"
MADE = vectors()
KINDS = ("privrl assisted policy on states, 1", "privrl assisted policy on measurements, 1")
ASSISTANCE = "assistance"


def node(script: str, **given: Any) -> Any:
    """What a script prints as JSON; it knows the module as `reader` and `given`."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("node is not installed, so the reader in JavaScript is not run.")
    start = f'import * as reader from {json.dumps(READER.as_uri())};\nimport {{ readFileSync }} from "node:fs";\n'
    start += 'const given = JSON.parse(readFileSync(0, "utf8"));\n'
    command = [program, "--input-type=module", "-e", start + script]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# ------------------------------------------------------------------------------------------------------ the vectors


def test_the_vectors_are_what_python_makes() -> None:
    assert VECTORS.read_text() == text_of(MADE)


def test_the_vectors_show_every_answer() -> None:
    steps = [step for entry in MADE for episode in entry["episodes"] for step in episode]
    reasons = {step["advice"]["reason"] for step in steps}
    assert reasons == {
        "",
        "withheld",
        "rules",
        "too little support",
        "no advantage",
        "not drawn",
        "weight reached",
        "past the horizon",
    }
    remarks = {one["remark"] for step in steps for one in step["advice"]["unusual"]}
    assert remarks == {"missing", "unexpectedly missing", "below the bounds", "above the bounds"}


def test_what_the_vectors_refuse_is_refused_without_its_value() -> None:
    for entry in MADE:
        for observation in entry["refused"]:
            with pytest.raises(ValueError, match=r".") as refused:
                ExportedPolicy(entry["policy"]).advise(observation)
            assert "ICU" not in str(refused.value) and "nowhere" not in str(refused.value)


_REPLAY = """
const same = (a, b) => typeof a === "number" && typeof b === "number" ? Math.abs(a - b) <= 1e-12 * Math.abs(b)
  : a && b && typeof a === "object" ? Object.keys({ ...a, ...b }).every((name) => same(a[name], b[name])) : a === b;
const wrong = [];
given.entries.forEach(({ policy, episodes, refused }, number) => {
  const read = reader.readPolicy(policy);
  for (const episode of episodes) {
    let state = reader.start();
    for (const step of episode) {
      const advice = reader.advise(read, step.observation, state, step.draw);
      state = reader.record(read, state, advice, step.taken);
      if (!same(advice, step.advice) || !same(state, step.state)) wrong.push([number, advice, step]);
    }
  }
  for (const observation of refused) {
    try { wrong.push([number, observation, reader.advise(read, observation)]); }
    catch (error) { if (!(error instanceof reader.Refused)) wrong.push([number, observation, String(error)]); }
  }
});
console.log(JSON.stringify(wrong));
"""


def test_the_reader_in_javascript_passes_the_vectors() -> None:
    assert node(_REPLAY, entries=json.loads(VECTORS.read_text())) == []


def test_the_reader_in_javascript_agrees_on_other_policies_and_episodes() -> None:
    assert node(_REPLAY, entries=[entry for seed in range(30) for entry in vectors(seed)]) == []


def test_the_reader_in_javascript_draws_uniform_numbers() -> None:
    mean, low, high = node("""
        const draws = Array.from({ length: 20000 }, reader.randomDraw), sum = draws.reduce((a, b) => a + b);
        console.log(JSON.stringify([sum / draws.length, Math.min(...draws), Math.max(...draws)]));
    """)
    assert abs(mean - 0.5) < 0.02 and 0.0 <= low < 0.01 and 0.99 < high < 1.0


def test_the_reader_in_javascript_refuses_what_is_not_a_policy_or_a_draw() -> None:
    found = node(
        """
        const refused = (make) => {
          try { return make(); } catch (error) { return error instanceof reader.Refused; }
        };
        const policy = reader.readPolicy(given.policy), state = reader.start();
        const advice = reader.advise(policy, 0, state, 0.5);
        console.log(JSON.stringify([
          refused(() => reader.readPolicy({ kind: "a cake" })), refused(() => reader.readPolicy(null)),
          refused(() => reader.advise(policy, 0, state, 1)), refused(() => reader.advise(policy, 0, state, NaN)),
          ...[3, -1].map((action) => refused(() => reader.record(policy, state, advice, action))),
          refused(() => reader.advise(policy, 0, { ...state, previous: 7 }, 0.5)),
        ]));
    """,
        policy=MADE[0]["policy"],
    )
    assert found == [True] * 7


def test_both_readers_refuse_a_strength_that_is_missing_or_out_of_range() -> None:
    """Before, the one in JavaScript gave all advice if the strengths were missing."""
    on_states, on_rows = (next(e["policy"] for e in MADE if e["policy"]["kind"] == kind) for kind in KINDS)
    unit, wrong = on_rows["assistance"], [None, [], [0.5] * 9, ["1"] * 4, [-0.5] * 4, [1.5] * 4, [None] * 4]
    made = [{**on_states, "strength": one} for one in wrong]
    made += [{**on_rows, "assistance": {**unit, "advantage_unit": one}} for one in (None, "1", -1.0)]
    made += [
        {k: v for k, v in on_states.items() if k != "strength"},
        {k: v for k, v in on_rows.items() if k != ASSISTANCE},
    ]
    for policy in made:
        with pytest.raises(ValueError, match="or it is damaged"):
            ExportedPolicy(policy)
    found = node(
        """
        const refused = (policy) => {
          try { return reader.readPolicy(policy); } catch (error) { return error instanceof reader.Refused; }
        };
        console.log(JSON.stringify([...given.made, ...given.right].map(refused)));
    """,
        made=made,
        right=[on_states, on_rows],
    )
    assert found[: len(made)] == [True] * len(made) and True not in found[len(made) :]


_REFUSED = """
const refused = (make) => {
  try { make(); return null; } catch (error) { return error instanceof reader.Refused ? error.message : String(error); }
};
"""


def first(kind: str) -> dict[str, Any]:
    """The first policy of this kind among the vectors."""
    return next(entry["policy"] for entry in MADE if entry["policy"]["kind"] == kind)


def altered(policy: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The policy with another value at one place; without the place, if the value is `...`."""
    changed = copy.deepcopy(policy)
    place = changed
    for key in path[:-1]:
        place = place[key]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return changed


STATES, ROWS = "privrl policy on states, 1", "privrl policy on measurements, 1"
A_STATES, A_ROWS = KINDS
RULED = {**first(A_STATES), "num_actions": 3, "rules": vectors()[2]["policy"]["rules"]}
RULED_ROWS = {**first(A_ROWS), "rules": MADE[7]["policy"]["rules"]}
_HORIZONS = [..., None, 0, -1, 1.5, "4", True]
DAMAGED: list[tuple[dict[str, Any], tuple[Any, ...], list[Any]]] = [
    (first(STATES), ("num_actions",), [..., 0, 1.5, 1e308, None]),
    (first(STATES), ("horizon",), _HORIZONS),
    (first(STATES), ("steps",), [..., [], [[]], [[0], [0, 1]], [[0], [0]], 3]),
    (first(STATES), ("steps", 0, 0), [3, -1, 0.5, True, None, [], [[0, 0.0]], [[3, 1.0]], [[0, -1.0]], [[0]]]),
    (RULED, ("state_names",), [["a"], [1, 2, 3, 4], None]),
    (RULED, ("action_names",), [[1], None]),
    (RULED, ("num_actions",), [..., 0, 2, None]),
    *((one, (*at, "horizon"), _HORIZONS) for one, at in ((RULED, ()), (RULED_ROWS, (ASSISTANCE,)))),
    *((one, (*at, "max_ratio"), [..., 0.9, "1", None]) for one, at in ((RULED, ()), (RULED_ROWS, (ASSISTANCE,)))),
    *((one, (*at, "max_weight"), [..., 1, 0, "nan"]) for one, at in ((RULED, ()), (RULED_ROWS, (ASSISTANCE,)))),
    *((one, (*at, "least_support"), [..., 0, 2, None]) for one, at in ((RULED, ()), (RULED_ROWS, (ASSISTANCE,)))),
    (RULED, ("advice",), [..., [], [0, 0]]),
    (RULED, ("advice", 0), [3, -1, 0.5, "0", None]),
    (RULED, ("support",), [..., [0.5] * 3]),
    (RULED, ("support", 0), [-0.1, 2, "1", None, True]),
    (RULED, ("rules",), [None, {}, [1]]),
    (RULED, ("rules", 1, "text"), [..., 1]),
    (RULED, ("rules", 1, "if"), [..., None]),
    (RULED, ("rules", 1, "if", 0, "column"), [..., "stat", None]),
    (RULED, ("rules", 1, "if", 0, "test"), [..., "=<", None]),
    (RULED, ("rules", 1, "if", 0, "values"), [..., [-1], ["1"], 1]),
    (RULED, ("rules", 0, "allowed"), [..., [], [[0], [0]], [[3]], [[0.5]], 1]),
    (RULED_ROWS, ("rules", 0, "if", 0, "bound"), [..., None, "60"]),
    (RULED_ROWS, ("rules", 0, "if", 0, "column"), ["Map", "state"]),
    (RULED_ROWS, ("columns",), [..., [], None]),
    (RULED_ROWS, ("columns", 0, "name"), [..., "", "lactate", "Map"]),
    (RULED_ROWS, ("columns", 0, "low"), [..., 130.0, 1e308, None]),
    (RULED_ROWS, ("columns", 0, "missing"), [..., 1]),
    (RULED_ROWS, ("columns", 2, "low"), [0.0]),
    (RULED_ROWS, ("columns", 2, "log"), [..., 1]),
    (RULED_ROWS, ("columns", 1, "values"), [..., ["a"], ["a"] * 4, ["a", "b", "c", ""]]),
    (RULED_ROWS, ("columns", 1, "kind"), [..., "feature", "cake"]),
    (RULED_ROWS, ("terms",), [..., None]),
    (RULED_ROWS, ("terms", "measurements"), [..., ["map"], ["map", "map"], ["map", "ward"]]),
    (RULED_ROWS, ("terms", "products"), [..., [], [["map", "ward"]], [["map"]]]),
    (RULED_ROWS, ("terms", "missing"), [..., [], ["ward"]]),
    (RULED_ROWS, ("terms", "categories"), [..., [], ["map"]]),
    (RULED_ROWS, ("centre",), [..., [0.0], [None, 0.0]]),
    (RULED_ROWS, ("half_width",), [..., [0.0, 1.0], [-1.0, 1.0]]),
    (RULED_ROWS, ("advantages",), [..., [], [[0.0]]]),
    (RULED_ROWS, ("advantages", 0, 0), [None, 1e308, "0"]),
    (RULED_ROWS, ("practice",), [..., [], [[0.0]]]),
    (RULED_ROWS, ("anchor",), [..., None]),
    (RULED_ROWS, ("support",), [..., 1.5, None]),
    (RULED_ROWS, (ASSISTANCE,), [..., None, []]),
    (RULED_ROWS, (ASSISTANCE, "support"), [..., [0.5] * 111]),
    (RULED_ROWS, (ASSISTANCE, "support", 7), [-0.1, 1.1, None]),
    (RULED_ROWS, (ASSISTANCE, "probability_edges"), [..., [0.1], [0.5] * 6]),
]


def test_both_readers_refuse_the_same_damage() -> None:
    """Before, missing limits, supports of 2, actions out of range and misspelt columns of rules gave advice."""
    made = [altered(policy, path, value) for policy, path, values in DAMAGED for value in values]
    for policy in made:
        with pytest.raises(ValueError, match=r"it is damaged: .* must"):
            ExportedPolicy(policy)
    right = [entry["policy"] for entry in MADE] + [RULED, RULED_ROWS]
    assert all(ExportedPolicy(policy) for policy in right)
    script = "console.log(JSON.stringify(given.made.map((policy) => refused(() => reader.readPolicy(policy)))));"
    found = node(_REFUSED + script, made=made + right)
    assert all("the policy is damaged: " in (message or "") for message in found[: len(made)])
    assert found[len(made) :] == [None] * len(right)


def test_both_readers_refuse_a_policy_of_another_class() -> None:
    """Before, the one in JavaScript ran it as if it were none."""
    policy = {**first(ROWS), "class": "study.Careful", "added": {}}
    with pytest.raises(ValueError, match="runs only as that class"):
        ExportedPolicy(policy)
    script = "console.log(JSON.stringify(refused(() => reader.readPolicy(given.policy))));"
    assert "runs only as that class" in node(_REFUSED + script, policy=policy)


LOST: list[dict[str, Any]] = [
    *({"weight": weight} for weight in (None, -0.5, -1, "1", "NaN", [], True, 2.0000001, 1e308)),
    *({"step": step} for step in (None, -1, 0.5, "0", True)),
    {"previous": "1"},
    {"previous": -1},
]


@pytest.mark.parametrize("which", [0, 1])
def test_both_readers_refuse_an_episode_that_lost_its_weight(which: int) -> None:
    """Before, the one in JavaScript advised without the limit of the weight, because no comparison with NaN is true."""
    policy, observation = ((first(A_STATES), 0), ({**first(A_ROWS)}, [60.0, 0, 1.0]))[which]
    policy = altered(policy, ("max_weight",) if which == 0 else (ASSISTANCE, "max_weight"), 2.0)
    python, kept = ExportedPolicy(policy), {"step": 1, "weight": 1.0, "previous": 1}
    advice = python.decide(observation, EpisodeState(**kept), 0.0)
    states = [{**kept, **lost} for lost in LOST]
    for state in [*states, {**kept, "weight": math.nan}, {**kept, "step": math.inf}, {**kept, "weight": math.inf}]:
        with pytest.raises(ValueError, match=r"cannot be continued with advice|must be a whole number"):
            python.decide(observation, EpisodeState(**state), 0.0)
        with pytest.raises(ValueError, match=r"cannot be continued with advice|must be a whole number"):
            python.record(EpisodeState(**state), advice, 1)
    script = """
        const policy = reader.readPolicy(given.policy), kept = { step: 1, weight: 1, previous: 1 };
        const advice = reader.advise(policy, given.observation, kept, 0);
        const all = [...given.states, { ...kept, weight: NaN }, { step: 1, previous: 1 }, { weight: 1, previous: 1 },
          { step: 1, weight: 1 }, { ...kept, step: Infinity }, {}, null];
        console.log(JSON.stringify(all.flatMap((state) => [
          refused(() => reader.advise(policy, given.observation, state, 0)),
          refused(() => reader.record(policy, state, advice, 1)),
        ])));
    """
    found = node(_REFUSED + script, policy=policy, observation=observation, states=states)
    assert len(found) == 2 * (len(states) + 7)
    assert all("cannot be continued with advice" in one or "number of an action" in one for one in found)


def test_a_weight_of_zero_is_continued_and_stays_zero() -> None:
    """The clinician did something else although the advice had probability 1. No limit can be exceeded from there."""
    python = ExportedPolicy({**first(A_STATES), "support": [1.0] * 4, "strength": [1.0] * 4})
    state = python.record(EpisodeState(), python.advise(0), 1)
    assert state == EpisodeState(1, 0.0, 1)
    advice = python.decide(0, state, 0.5)
    assert advice.probability == 1.0 and python.record(state, advice, 2).weight == 0.0


# ------------------------------------------------------------------------------------------------------ the horizon


def test_an_assisted_policy_does_not_advise_past_its_horizon() -> None:
    """Before, the exported policy advised at later steps of longer episodes, which no evaluation had seen."""
    for entry in MADE:
        kind = entry["policy"]["kind"]
        if kind in KINDS:
            reader = ExportedPolicy(entry["policy"])
            late = [step for episode in entry["episodes"] for step in episode[4:]]
            assert len(late) == 6
            for step in late:
                advice, withheld = step["advice"], reader.is_withheld
                assert advice["reason"] == ("withheld" if withheld else "past the horizon")
                assert [advice[part] for part in ("action", "choice", "probability")] == [None, None, 0.0]
                assert advice["if_taken"] == advice["otherwise"] == 1.0
    on_states, on_rows = ExportedPolicy(first(A_STATES)), ExportedPolicy(first(A_ROWS))
    for reader, observation in ((on_states, 0), (on_rows, [60.0, 0, 1.0])):
        reasons = [reader.advise(observation, step=step).reason for step in range(6)]
        assert "past the horizon" not in reasons[:4] and reasons[4:] == ["past the horizon"] * 2
    assert on_states.advise(0).probability > 0.0
    with pytest.raises(ValueError, match="state"):
        on_states.advise(9, step=7)
    with pytest.raises(ValueError, match="not a column"):
        on_rows.advise({"mapp": 1.0}, step=7)


def test_the_weight_of_a_longer_episode_stays_after_the_horizon() -> None:
    policy = AssistedPolicy(jnp.array([0, 1, 1]), jnp.full(3, 0.3), 1.5, 4.0, horizon=2)
    states, actions = jnp.array([0, 1, 2, 0, 1]), jnp.array([0, 0, 1, 0, 1])
    on = jnp.ones(5, bool)
    steps = policy.weigh(states, actions, on).steps
    reader, state = ExportedPolicy(policy.to_json()), EpisodeState()
    for at, action, w in zip(states.tolist(), actions.tolist(), steps.tolist(), strict=True):
        state = reader.record(state, reader.decide(at, state, 0.5), action)
        assert state.weight == pytest.approx(w, abs=1e-12)
    assert steps[0] != 1.0 and (steps[1:] == steps[1]).all()
    changed = policy.changed_decisions(states, 1 - policy.choose(states), on)
    assert (changed[:2] > 0.0).all() and (changed[2:] == 0.0).all()


@pytest.mark.parametrize("horizon", [0, -1, 1.5, None])
def test_an_assisted_policy_has_a_horizon(horizon: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        AssistedPolicy(jnp.zeros(1, int), jnp.ones(1), horizon=horizon)
    policy = AssistedPolicy(jnp.zeros(1, int), jnp.ones(1), horizon=3)
    assert policy.with_limits(2.0, 3.0).horizon == policy.without_advice().horizon == 3
    kept = policy.to_json()
    assert AssistedPolicy.from_json(kept).horizon == 3
    with pytest.raises(MALFORMED):
        AssistedPolicy.from_json({**kept, "horizon": horizon})
    with pytest.raises(MALFORMED):
        AssistedPolicy.from_json({name: value for name, value in kept.items() if name != "horizon"})


# ------------------------------------------------------------------------------------------------------ in Python


def test_the_reader_in_python_refuses_what_is_not_a_policy_or_a_draw() -> None:
    policy = ExportedPolicy(MADE[0]["policy"])
    advice = policy.advise(0)
    with pytest.raises(ValueError, match="`kind` must be one of"):
        ExportedPolicy({"kind": "a cake"})
    for kind in ("privrl policy on states, 1", "privrl assisted policy on measurements, 1"):
        with pytest.raises(ValueError, match="or it is damaged"):
            ExportedPolicy({"kind": kind})
    for draw in (1.0, -0.1, math.nan):
        with pytest.raises(ValueError, match=r"`draw` is .* must lie in \[0, 1\)"):
            policy.decide(0, EpisodeState(), draw)
    for action in (3, -1, True, 0.5, None):
        with pytest.raises(ValueError, match=r"`action` must be a whole number in \[0, 3\)"):
            policy.record(EpisodeState(), advice, action)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`previous` must be"):
        policy.advise(0, previous=7)


def test_whole_numbers_may_be_written_as_floats() -> None:
    """JavaScript cannot tell 1.0 from 1; before, Python refused states, categories and actions that it accepted."""
    policy, rows = ExportedPolicy({**MADE[1]["policy"], "rules": RULED["rules"]}), ExportedPolicy(RULED_ROWS)
    for whole in (1.0, np.float64(1.0), np.int64(1)):
        assert (
            policy.advise(whole, previous=whole)
            == policy.advise({"state": whole}, previous=1)
            == policy.advise(1, previous=1)
        )  # type: ignore[arg-type]
        named = {"map": 60.0, "ward": whole, "lactate": 1.0}
        assert rows.advise(named) == rows.advise([60.0, 2.0, 1.0]) == rows.advise({**named, "ward": "1"})
        state = policy.record(EpisodeState(whole, 1.0, whole), policy.advise(0), whole)  # type: ignore[arg-type]
        assert (
            state == EpisodeState(2, 1.0, 1)
            and json.dumps(asdict(state)) == '{"step": 2, "weight": 1.0, "previous": 1}'
        )
    for wrong in (0.5, math.nan, math.inf, True, np.True_, "1"):
        with pytest.raises(ValueError, match="state"):
            policy.advise(wrong)  # type: ignore[arg-type]


@given(seed=st.integers(0, 2**32 - 1), stationary=st.booleans())
@settings(max_examples=30, deadline=None)
def test_a_policy_on_states_advises_its_most_probable_action(seed: int, stationary: bool) -> None:
    rng = np.random.default_rng(seed)
    H, S, A = rng.integers(1, 4, 3)
    p = rng.dirichlet(np.full(A, 0.3), (1 if stationary else H, S))
    p = np.broadcast_to(np.where(rng.random((*p.shape[:2], 1)) < 0.5, np.eye(A)[p.argmax(axis=-1)], p), (H, S, A))
    policy = TabularPolicy(jnp.asarray(p))
    reader = ExportedPolicy(json.loads(json.dumps(policy.to_json())))
    assert len(reader._content["steps"]) == (1 if stationary else H) or (p == p[:1]).all()
    for step, state in np.ndindex(int(H), int(S)):
        assert reader.advise(state, step=step).action == policy.action(state, step)
        drawn = [reader.decide(state, EpisodeState(step), (i + 0.5) / 200).action for i in range(200)]
        shares = np.bincount(np.array(drawn, int), minlength=A) / 200
        assert np.abs(shares - p[step, state]).max() <= A / 200
        assert all(p[step, state][action] > 0 for action in drawn)
    assert reader.advise(0, step=int(H)) == Advice(None, "past the horizon", (), 0.0, None, 1.0, 1.0)


@given(
    support=st.lists(st.sampled_from([0.0, 0.04, 0.05, 0.3, 0.9, 1.0]), min_size=3, max_size=3),
    max_ratio=st.sampled_from([1.0, 1.5, 3.0, math.inf]),
    max_weight=st.sampled_from([1.01, 4.0, math.inf]),
    stay=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=6),
)
@settings(max_examples=30, deadline=None)
def test_the_running_weight_is_that_of_the_evaluation(
    support: list[float], max_ratio: float, max_weight: float, stay: list[tuple[int, int]]
) -> None:
    """`weigh`, by which recorded episodes are weighted, and the reader decision by decision."""
    policy = AssistedPolicy(jnp.array([0, 1, 1]), jnp.asarray(support), max_ratio, max_weight, horizon=100)
    states, actions = (jnp.asarray(column) for column in zip(*stay, strict=True))
    w = policy.weigh(states, actions, jnp.ones(len(stay), bool)).last
    reader, state = ExportedPolicy(json.loads(json.dumps(policy.to_json()))), EpisodeState()
    for at, action in stay:
        alpha = float(policy.decisions(jnp.asarray(at)).alpha(policy.ratio_at(state.weight)))
        for draw in (0.0, 0.5, 1.0 - 2.0**-53):
            advice = reader.decide(at, state, draw)
            assert advice.action == (int(policy.advice[at]) if draw < alpha else None)
            assert advice.probability == pytest.approx(alpha, abs=1e-15)
        state = reader.record(state, reader.decide(at, state, 0.5), action)
    assert state.weight == pytest.approx(float(w), abs=1e-12)
    assert state.step == len(stay) and state.previous == stay[-1][1]


def test_an_episode_is_continued_from_what_was_stored() -> None:
    for entry in MADE:
        policy = ExportedPolicy(entry["policy"])
        for episode in entry["episodes"]:
            draws = iter([0.0 if step["draw"] is None else step["draw"] for step in episode])
            whole, parts = policy.start_episode(draw=draws.__next__), EpisodeState()
            for step in episode:
                advice = whole.advise(step["observation"])
                draw = 0.0 if step["draw"] is None else step["draw"]
                stored = EpisodeState(**json.loads(json.dumps(asdict(parts))))
                assert policy.decide(step["observation"], stored, draw) == advice
                whole.record(step["taken"])
                parts = policy.record(parts, advice, step["taken"])
                assert whole.state == parts


def test_a_withheld_policy_says_so_at_every_decision(tmp_path: Path) -> None:
    """Before, its reason was "too little support", and it named the choice that was withheld."""
    people = privrl.envs.make("riverswim", states=3, horizon=4)
    result = privrl.fit(people, "dp-tap", epsilon=0.1, delta=1e-6, episodes=200, key=0, evaluate=0.3, spend_anyway=True)
    assert result.decision is not None and result.decision.outcome == "withheld"
    reader = ExportedPolicy.load(result.save(tmp_path / "saved") / "policy.json")
    for draw in (None, 0.0, 0.99):
        advice = reader.decide(1, EpisodeState(3, 1.0, 0), draw)
        assert advice == Advice(None, "withheld", (), 0.0, None, 1.0, 1.0)
    assert result.policy.advise(1).reason == "withheld" and reader.is_withheld
    with pytest.raises(ValueError, match="state"):
        reader.advise(7)
    for entry in MADE:
        assert ExportedPolicy(entry["policy"]).is_withheld == (entry in MADE[-2:])


@given(
    support=st.lists(st.sampled_from([0.0, 0.04, 0.05, 0.3]), min_size=3, max_size=3),
    strength=st.lists(st.sampled_from([0.0, 1e-9, 1.0]), min_size=3, max_size=3),
)
@settings(max_examples=30, deadline=None)
def test_a_policy_is_withheld_if_it_is_silent(support: list[float], strength: list[float]) -> None:
    policy = AssistedPolicy(jnp.array([0, 1, 1]), jnp.asarray(support), strength=jnp.asarray(strength), horizon=100)
    assert ExportedPolicy(json.loads(json.dumps(policy.to_json()))).is_withheld == policy.is_silent


def test_a_saved_policy_on_states_is_read_with_its_names(tmp_path: Path) -> None:
    people = privrl.envs.make("riverswim", states=3, horizon=4)
    named: dict[str, Any] = {"state_names": ("left", "middle", "right"), "action_names": ("swim left", "swim right")}
    result = privrl.fit(people, "dp-apvi", epsilon=1, delta=1e-6, episodes=200, key=0, **named)
    folder = result.save(tmp_path / "saved")
    assert privrl.Result.load(folder).policy.to_json() == result.policy.to_json()
    reader = ExportedPolicy.load(folder / "policy.json")
    for number, name in enumerate(named["state_names"]):
        advice = result.policy.advise(number)
        assert advice == reader.advise(name) == reader.advise({"state": number})
        assert advice.action == result.policy.action(number, 0)
    content = json.loads((folder / "policy.json").read_text())
    assert content["action_names"] == list(named["action_names"])


def test_without_a_draw_no_advice_is_given_that_is_not_certain() -> None:
    """Before, a plain call gave all advice, however rarely the evaluation had let it be given."""
    support, k = [0.01, 0.3, 0.5, 1.0], 1.5
    policy = AssistedPolicy(jnp.array([0, 1, 1, 0]), jnp.asarray(support), k, 4.0, horizon=9)
    reader = ExportedPolicy(json.loads(json.dumps(policy.to_json())))
    found = [policy.advise(state) for state in range(4)]
    assert found == [reader.advise(state) for state in range(4)]
    assert [one.action for one in found] == [None, None, None, 0] == [None if a < 0 else a for a in policy(range(4))]
    assert [one.reason for one in found] == ["too little support", "not drawn", "not drawn", ""]
    assert [one.choice for one in found] == [0, 1, 1, 0] and found[1].probability == pytest.approx(0.5 * 0.3 / 0.7)
    assert reader(1) == -1 and reader.decide(1, EpisodeState(), 0.0).action == 1
    assert all(ExportedPolicy(entry["policy"]).advise(0).action is not None for entry in MADE[:2])  # no limits to keep
    plain, drawn = node(
        """
        const policy = reader.readPolicy(given.policy), state = reader.start();
        console.log(JSON.stringify([null, 0].map((draw) => [0, 1, 2, 3].map((at) => {
          const { action, reason } = reader.advise(policy, at, state, draw);
          return [action, reason];
        }))));
    """,
        policy=policy.to_json(),
    )
    assert plain == [[one.action, one.reason] for one in found]
    assert [action for action, _ in drawn] == [None, 1, 1, 0]
