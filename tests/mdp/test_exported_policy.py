"""Readers of `policy.json`, in Python and in JavaScript: the same advice for every observation, state and draw."""

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
    policy = AssistedPolicy(jnp.array([0, 1, 1]), jnp.asarray(support), max_ratio, max_weight)
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
    policy = AssistedPolicy(jnp.array([0, 1, 1]), jnp.asarray(support), strength=jnp.asarray(strength))
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
