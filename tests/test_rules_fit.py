"""Rules on actions in a study: learners, saved policies, evaluations, certificates, reports and commands keep them."""

import itertools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_cli import call

import privrl
from privrl.data.episodes import Episodes
from privrl.envs.worlds_by_name import make
from privrl.mdp.exported_policy import EpisodeState, ExportedPolicy
from privrl.mdp.planning import policy_value
from privrl.mdp.rule_file import Vocabulary, read_rules
from privrl.mdp.simulation import cumulative_table
from privrl.mdp.types import TabularPolicy
from privrl.reports.folder_page import render_folder
from privrl.studies.results.certification import certify_result
from privrl.studies.results.result import Result

RIVER = make("riverswim", states=4, horizon=5)
RULES: list[dict[str, Any]] = [
    {"if": "state in 0, 2", "then": "action is 0"},
    {"if": "state is 3", "then": "action >= previous"},
]
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


def people(count: int) -> Episodes:
    stays = RIVER.sample(RIVER.behaviour_policy(), count, jax.random.key(0))
    return Episodes.from_trajectories(stays, num_states=4, num_actions=2)


def check_every_decision(policy: Any, rules: Any) -> None:
    """Every state, step, previous action and draw, through the reader of the saved policy."""
    reader = ExportedPolicy(json.loads(json.dumps(policy.to_json())))
    for state, step, previous in itertools.product(range(4), range(5), [None, 0, 1]):
        for draw in (None, 0.0, 0.3, 0.7, 0.999):
            found = reader.decide(state, EpisodeState(step, 1.0, previous), draw)
            assert found.action is None or rules.allowed({"state": float(state)}, previous)[found.action]


@pytest.mark.parametrize("recipe", ["dp-apvi", "dp-tap", "dp-tdfp", "auto", "dp-pevi", "dp-vapvi", "paper"])
def test_every_planning_recipe_keeps_the_rules(recipe: str) -> None:
    if recipe == "paper":
        learner = privrl.APVI(4, 2, 5, calibration="paper")
        result = privrl.fit(people(300), learner, privrl.Central(**BUDGET), rules=RULES, key=1)
    else:
        result = privrl.fit(people(300), recipe, **BUDGET, rules=RULES, key=1)
    policy = result.policy
    assert policy.rules.texts == ["if state in 0, 2 then action is 0", "if state is 3 then action >= previous"]
    table = policy.rules.state_table(4)
    assert not np.asarray(policy.probabilities)[:, ~table].any()
    np.testing.assert_allclose(np.asarray(policy.probabilities).sum(axis=-1), 1.0)
    check_every_decision(policy, policy.rules)
    assert result.certificate.bounds["rules"] == policy.rules.texts
    assert certify_result(result, allow_non_private=True).ok


def test_a_table_of_actions_is_refused_if_rules_need_the_previous_action() -> None:
    """It would draw what a rule forbids: pilots and services draw from such tables."""
    rules = read_rules(RULES, Vocabulary(2, num_states=4))
    policy = TabularPolicy(jnp.broadcast_to(jnp.eye(2)[jnp.asarray([0, 1, 0, 0])], (5, 4, 2)), rules)
    with pytest.raises(ValueError, match="need the previous action"):
        cumulative_table(policy)
    assert policy.advise(3, previous=1).reason == "rules" and policy.advise(3, previous=0).action == 0


def test_candidates_of_auto_keep_the_rules() -> None:
    """Advice, the most frequent action and practice itself: what is chosen never matters."""
    from privrl.evaluation.chosen import Chosen
    from privrl.learners.restriction import restrict
    from privrl.learners.tabular.tap import TAP
    from privrl.studies.offline.learning import learn

    rules = read_rules(RULES, Vocabulary(2, num_states=4))
    learner = restrict(Chosen((TAP(4, 2, 5),)), rules)
    for seed in range(3):
        found = learn(
            people(400), learner, privrl.Central(epsilon=0.1, delta=1e-6), None, key=jax.random.key(seed), unit=None
        )
        check_every_decision(found.policy, rules)
        assert not np.asarray(found.policy.probabilities)[:, ~rules.state_table(4)].any()


def test_a_plan_is_the_best_one_that_keeps_the_rules() -> None:
    """Without noise and with many people, it has the value of the best policy among all that are allowed."""
    rules = RULES[:1]
    result = privrl.fit(RIVER, "apvi", episodes=20_000, rules=rules, key=0)
    table = read_rules(rules, Vocabulary(2, num_states=4)).state_table(4)
    best = max(
        float(policy_value(RIVER.mdp, TabularPolicy(jnp.broadcast_to(jnp.eye(2)[jnp.asarray(actions)], (5, 4, 2)))))
        for actions in itertools.product(range(2), repeat=4)
        if all(table[s, a] for s, a in enumerate(actions))
    )
    assert result.report["value"] >= best - 1e-6
    assert result.report["value"] < result.report["optimal"] - 1e-3


def test_rules_that_cannot_be_kept_are_refused_before_anything_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> None:
        raise AssertionError("Something was released.")

    monkeypatch.setattr("privrl.privacy.trust.curator.Curator.__call__", unreachable)
    for rules, words in (
        ([{"then": "action < 1"}, {"if": "state is 2", "then": "action is 1"}], "leave no action"),
        ([{"if": "map < 60", "then": "action < 1"}], "`map` is not in the names of the states"),
        ([{"then": "action < 7"}], "`7` is not action 0 to 1"),
    ):
        with pytest.raises(ValueError, match=words):
            privrl.fit(people(20), "dp-tap", **BUDGET, rules=rules)
    with pytest.raises(ValueError, match="`FQI` cannot keep rules on actions. Use a recipe such as auto"):
        privrl.fit(people(20), "dp-fqi", **BUDGET, rules=RULES)
    with pytest.raises(ValueError, match="depends on the previous action, and values of simulated people"):
        privrl.fit(RIVER, "dp-tap", **BUDGET, episodes=20, rules=RULES)


def test_an_evaluated_policy_keeps_the_rules_and_is_saved_with_them(tmp_path: Path) -> None:
    compared: dict[str, Any] = {"evaluate": 0.5, "practice": RIVER.behaviour, "release_anyway": True}
    result = privrl.fit(people(3_000), "dp-tap", **BUDGET, rules=RULES, key=2, **compared)
    rules = result.policy.rules
    assert rules and result.evaluation is not None and result.evaluation.policy.rules == rules
    check_every_decision(result.policy, rules)
    folder = result.save(tmp_path / "saved")
    loaded = Result.load(folder)
    assert loaded.policy.rules == rules == loaded.advice.rules and loaded.evaluation is not None
    assert loaded.evaluation.policy.rules == rules
    check_every_decision(ExportedWith(folder / "policy.json"), rules)
    page = render_folder(folder)
    assert "if state in 0, 2 then action is 0" in page.replace("&gt;", ">")
    again = privrl.evaluate(people(500), loaded, **BUDGET, practice=RIVER.behaviour, key=3)
    assert again.policy.rules == rules and again.certificate.bounds["rules"] == rules.texts
    with pytest.raises(ValueError, match="rules of its own"):
        privrl.evaluate(people(500), loaded, **BUDGET, practice=RIVER.behaviour, key=3, rules=RULES)


class ExportedWith:
    """A saved file in the place of a policy."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def to_json(self) -> Any:
        return json.loads(self._path.read_text())


def test_a_policy_from_elsewhere_is_evaluated_with_rules() -> None:
    always_right = np.ones(4, int)
    found = privrl.evaluate(people(500), always_right, **BUDGET, practice=RIVER.behaviour, rules=RULES, key=3)
    assert (found.policy.with_limits(np.inf, np.inf)(np.arange(4)) == [-1, 1, -1, 1]).all()
    free = privrl.evaluate(people(500), always_right, **BUDGET, practice=RIVER.behaviour, key=3)
    assert found.unsupported.value > free.unsupported.value + 0.2


def test_a_policy_on_measurements_keeps_rules_on_columns_doses_and_the_previous_action(tmp_path: Path) -> None:
    world = make("anticoagulation", horizon=4, evaluated=4096)
    data = privrl.studies.simulation.sampled_tables.sampled(world, 800, jax.random.key(0))
    rules = [
        {"if": "inr > 3", "then": "action <= 1"},
        {"if": ["genotype is poor", "weight < 60"], "then": "action is not 4"},
        {"then": "action <= previous + 1"},
    ]
    for compared in ({}, {"evaluate": 0.4, "return_range": (0.0, 1.0), "release_anyway": True}):
        result = privrl.fit(data, "dp-lap", epsilon=20.0, delta=1e-6, rules=rules, key=1, **compared)  # type: ignore[arg-type]
        assert result.certificate.bounds["rules"] == result.policy.rules.texts
        assert certify_result(result, allow_non_private=True).ok
        reader = ExportedPolicy.load(result.save(tmp_path / f"saved-{len(compared)}") / "policy.json")
        rng, names = np.random.default_rng(0), [column.name for column in world.columns]
        for _ in range(300):
            row = [rng.uniform(0.8, 8), rng.uniform(0, 10), rng.uniform(40, 140), float(rng.integers(3))]
            row = [np.nan if rng.random() < 0.15 else x for x in row]
            previous = [None, 0, 1, 2, 3, 4][int(rng.integers(6))]
            found = reader.advise(row, previous=previous)
            assert found.choice is not None
            assert reader.rules.allowed(dict(zip(names, row, strict=True)), previous)[found.choice]


def test_commands_take_rules(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[rule]]\nif = "state in 0, 2"\nthen = "action is 0"\n')
    fit = ("fit", "env:riverswim", "--recipe", "dp-tap", "--epsilon", "1", "--delta", "1e-6", "--episodes", "300")
    done = call(*fit, "--seed", "1", "--rules", str(path), "--out", str(tmp_path / "policy"))
    assert done.code == 0 and "Rule on actions: if state in 0, 2 then action is 0." in done.out
    assert Result.load(tmp_path / "policy").policy.rules.texts == ["if state in 0, 2 then action is 0"]
    refused = call(*fit, "--seed", "1", "--rules", str(tmp_path / "none.toml"))
    assert refused.code != 0
