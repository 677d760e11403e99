"""Names of recipes and worlds, and integer keys: the same results as with objects, and clear errors for mixtures."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from test_cli import call

import privrl
from privrl.data.schema.table_description import TableDescription
from privrl.privacy.accounting.privacy_budget import BudgetError, PrivacyWarning
from privrl.privacy.trust.privatizers import PairingError
from privrl.recipes.pairing import BudgetArguments, resolve_pair

CENTRAL = privrl.Central(epsilon=1.0, delta=1e-6)


def river() -> privrl.envs.RiverSwim:
    return privrl.envs.make("riverswim")


HOW = {"episodes": 300, "seeds": 2}


class TestRun:
    def test_names_and_objects_give_the_same_numbers(self) -> None:
        named = privrl.run("riverswim", "dp-ucbvi", epsilon=1, delta=1e-6, key=3, **HOW)
        learner = privrl.recipes.get("dp-ucbvi").build(river())
        built = privrl.run(river(), learner, CENTRAL, key=jax.random.key(3), **HOW)
        np.testing.assert_array_equal(named.total_regret, built.total_regret)
        assert named.certificate == built.certificate
        assert not np.array_equal(
            named.total_regret,
            privrl.run("riverswim", "dp-ucbvi", epsilon=1, delta=1e-6, key=4, **HOW).total_regret,
        )

    def test_a_sweep_of_a_recipe_has_one_run_for_each_budget(self) -> None:
        named = privrl.sweep("riverswim", "dp-ucbvi", epsilon=[1, 8], delta=1e-6, key=3, **HOW)
        learner = privrl.recipes.get("dp-ucbvi").build(river())
        pairs = [(learner, privrl.Central(epsilon=epsilon, delta=1e-6)) for epsilon in (1, 8)]
        built = privrl.sweep(river(), pairs, key=jax.random.key(3), **HOW)
        for one, other in zip(named, built, strict=True):
            np.testing.assert_array_equal(one.total_regret, other.total_regret)
            assert one.certificate == other.certificate
        with pytest.raises(TypeError, match="`epsilon` and `rho` are lists"):
            privrl.sweep("riverswim", "dp-ucbvi", epsilon=[1, 8], rho=[1, 8], key=3, **HOW)
        with pytest.raises(TypeError, match="belong to the name of a recipe"):
            privrl.sweep("riverswim", pairs, epsilon=1, key=3, **HOW)

    def test_recipes_without_privacy_need_no_budget(self) -> None:
        assert privrl.run("riverswim", "ucbvi", episodes=20, key=0).certificate.notion == "none"
        with pytest.raises(ValueError, match="takes no budget"):
            privrl.run("riverswim", "ucbvi", epsilon=1, episodes=20, key=0)

    @pytest.mark.parametrize("key", [-1, 2**63])
    def test_a_key_out_of_range_is_refused(self, key: int) -> None:
        with pytest.raises(ValueError, match="`key` is"):
            privrl.run("riverswim", "ucbvi", episodes=20, key=key)

    @pytest.mark.parametrize(
        ("env", "recipe", "words"),
        [
            ("riverswam", "ucbvi", "Did you mean `riverswim`"),
            ("riverswim", "ucbvj", "Did you mean `ucbvi`"),
            ("riverswim", "dp-tdfp", "learns from a table. Use `privrl.fit`"),
            ("anticoagulation", "ucbvi", "people are simulated one by one"),
        ],
    )
    def test_unknown_and_unsuitable_names_are_refused(self, env: str, recipe: str, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            privrl.run(env, recipe, episodes=20, key=0)


def test_mixtures_of_the_two_forms_are_refused() -> None:
    learner = privrl.recipes.get("ucbvi").build(river())
    none, online = BudgetArguments(), ("online",)
    with pytest.raises(TypeError, match="names both a learner and a privatizer"):
        resolve_pair("dp-ucbvi", CENTRAL, "riverswim", none, *online)
    with pytest.raises(TypeError, match="`privatizer` is missing"):
        resolve_pair(learner, None, None, none, *online)
    with pytest.raises(TypeError, match="`epsilon` belongs to the name of a recipe"):
        resolve_pair(learner, CENTRAL, None, BudgetArguments(epsilon=1.0), *online)
    with pytest.raises(TypeError, match="Give `world`"):
        resolve_pair("ucbvi", None, None, none, *online)
    for budget, words in (
        (none, "needs a budget"),
        (BudgetArguments(delta=1e-6), "alone is not a budget"),
        (BudgetArguments(epsilon=float("inf")), "finite number"),
        (BudgetArguments(epsilon=1.0, delta=1.0), "strictly between 0 and 1"),
    ):
        with pytest.raises(BudgetError, match=words):
            resolve_pair("dp-ucbvi", None, "riverswim", budget, *online)


class TestPeopleWhoTakePart:
    def test_an_agent_by_name_goes_on_where_one_of_objects_stopped(self, tmp_path: Path) -> None:
        """The store refuses another learner, budget or simulation, so both forms are one study."""
        how = {"num_users": 4, "fixed_order": True, "key": jax.random.key(1)}
        learner = privrl.recipes.get("dp-ucbvi").build(river())
        with privrl.ReleaseStore(tmp_path / "store.db") as store:
            first = privrl.Agent(learner, CENTRAL, store=store, **how)
            ticket = first.begin_episode("a")
            named = {"world": "riverswim", "epsilon": 1.0, "delta": 1e-6}
            again = privrl.Agent("dp-ucbvi", store=store, **named, **{**how, "key": 1})
            assert again.begin_episode("a") == ticket
            with pytest.raises(PairingError, match="needs `Central"):
                privrl.Agent("ldp-ucbvi", store=store, world="riverswim", epsilon=1.0, **how)

    def test_devices_and_their_server_by_name(self) -> None:
        named = {"world": "riverswim", "epsilon": 1.0}
        server = privrl.Server("ldp-ucbvi", num_users=10, key=0, **named)
        learner = privrl.recipes.get("ldp-ucbvi").build(river())
        broadcast, record = server.broadcast(), river().sample(river().uniform_policy(), 1, jax.random.key(0))
        record = jax.tree.map(lambda x: x[0], record)
        by_name = privrl.Client("ldp-ucbvi", key=5, **named).report(record, broadcast)
        by_object = privrl.Client(learner, privrl.Local(epsilon=1.0), key=jax.random.key(5)).report(record, broadcast)
        assert by_name.to_bytes() == by_object.to_bytes()
        with pytest.raises(TypeError, match="need `Local"):
            privrl.Client("dp-ucbvi", key=0, world="riverswim", epsilon=1.0, delta=1e-6)


SCHEMA = {
    "unit": "unit_id",
    "episode": "episode_id",
    "step": "step",
    "state": "state",
    "action": "action",
    "reward": "reward",
    "horizon": 4,
    "num_states": 3,
    "num_actions": 2,
}


@pytest.fixture(scope="module")
def people() -> privrl.data.Episodes:
    world = privrl.envs.make("riverswim", states=3, horizon=4)
    sampled = world.sample(world.behaviour_policy(), 400, jax.random.key(0))
    return privrl.data.Episodes.from_trajectories(sampled, num_states=3, num_actions=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, and its schema as a file."""
    found = tmp_path_factory.mktemp("table")
    world = privrl.envs.make("riverswim", states=3, horizon=4)
    sampled = world.sample(world.behaviour_policy(), 400, jax.random.key(0))
    privrl.data.write_parquet(found / "people.parquet", sampled, units=[f"p{i:03}" for i in range(400)])
    lines = (f"{name} = {json.dumps(value)}" for name, value in SCHEMA.items())
    (found / "people.toml").write_text("\n".join(lines))
    return found


def same(one: privrl.Result, other: privrl.Result) -> None:
    """Everything but the date is the same, to the last byte."""
    assert one.contents() == other.contents()
    assert one.certificate == other.certificate


class TestFit:
    budget = (("epsilon", 1.0), ("delta", 1e-6))

    @pytest.mark.filterwarnings("ignore::privrl.privacy.accounting.privacy_budget.PrivacyWarning")
    def test_a_table_by_schema_by_mapping_and_on_the_command_line(self, folder: Path, tmp_path: Path) -> None:
        table, schema = folder / "people.parquet", folder / "people.toml"
        by_file = privrl.fit(table, "dp-apvi", schema=schema, **dict(self.budget), key=3)
        same(by_file, privrl.fit([str(table)], "dp-apvi", schema=SCHEMA, **dict(self.budget), key=3))
        options = ("--epsilon", "1", "--delta", "1e-6", "--seed", "3", "--out", tmp_path / "out")
        assert call("fit", table, "--recipe", "dp-apvi", "--schema", schema, *options).code == 0
        loaded = privrl.Result.load(tmp_path / "out")
        by_file.save(tmp_path / "again")
        for name in ("policy.npz", "report.json", "certificate.json"):
            assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
        assert loaded.report["recipe"] == "dp-apvi" and loaded.report["table"]["horizon"] == 4

    def test_a_recipe_on_an_object_is_its_learner_and_privatizer(self, people: privrl.data.Episodes) -> None:
        named = privrl.fit(people, "dp-apvi", **dict(self.budget), key=3)
        learner = privrl.recipes.get("dp-apvi").learner(privrl.recipes.Problem.of_table(3, 2, 4, num_episodes=400))
        built = privrl.fit(people, learner, CENTRAL, key=jax.random.key(3))
        assert named.certificate.result_sha256 == built.certificate.result_sha256
        assert named.report == {"recipe": "dp-apvi", **built.report}

    def test_a_world_by_name_and_on_the_command_line(self, tmp_path: Path) -> None:
        how = {"episodes": 200, "key": 3, "evaluate": 0.3, "practice": "env"}
        named = privrl.fit("env:riverswim", "dp-apvi", **dict(self.budget), **how)
        same(named, privrl.fit(river(), "dp-apvi", **dict(self.budget), **how))
        options = ("--epsilon", "1", "--delta", "1e-6", "--seed", "3", "--episodes", "200", "--evaluate", ".3")
        arguments = ("fit", "env:riverswim", "--recipe", "dp-apvi", *options, "--practice", "env")
        content = call(*arguments, "--out", tmp_path / "out", "--json").json()
        same(privrl.Result.load(tmp_path / "out"), privrl.Result.load(named.save(tmp_path / "again")))
        assert content["value"] == [named.report["value"]] and content["evaluation"]["truth"] == named.report["truth"]

    def test_several_repetitions_begin_with_the_same_one(self) -> None:
        how = {**dict(self.budget), "episodes": 50, "key": 3}
        several = privrl.fit("env:riverswim", "dp-apvi", seeds=2, **how)
        once = privrl.fit("env:riverswim", "dp-apvi", **how)
        assert len(several.report["value_by_seed"]) == 2
        assert several.certificate.result_sha256 == once.certificate.result_sha256

    def test_names_statements_and_a_signature(self, people: privrl.data.Episodes, tmp_path: Path) -> None:
        private = Ed25519PrivateKey.generate()
        pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (tmp_path / "key.pem").write_bytes(pem)
        words = {"state_names": ["low", "middle", "high"], "purpose": "a test", "unit": "patient"}
        result = privrl.fit(people, "dp-apvi", **dict(self.budget), **words, sign=tmp_path / "key.pem")
        assert result.report["names"] == {"states": ["low", "middle", "high"]}
        assert result.certificate.stated == {"purpose": "a test"} and result.certificate.unit == "patient"
        result.certificate.verify(private.public_key())
        loaded = privrl.Result.load(result.save(tmp_path / "out"))
        assert privrl.certify(loaded.certificate, loaded.policy, public_key=private.public_key()).authenticated
        with pytest.raises(ValueError, match="characters"):  # before anything is spent
            privrl.fit(people, "dp-apvi", **dict(self.budget), purpose="")

    def test_a_policy_that_is_not_better_is_withheld(self, people: privrl.data.Episodes) -> None:
        result = privrl.fit(people, "dp-apvi", **dict(self.budget), evaluate=0.3, require_better=True, key=1)
        assert result.policy is None and result.evaluation is not None
        assert any("there is no policy" in note for note in result.certificate.notes)

    def test_a_large_delta_and_seeded_noise_are_warned_of(self, people: privrl.data.Episodes, folder: Path) -> None:
        with pytest.warns(PrivacyWarning, match="`delta` is above one over the number of people"):
            privrl.fit(people, "dp-apvi", epsilon=1, delta=0.01, key=0)
        with pytest.warns(PrivacyWarning, match="the number of people is not public"):
            privrl.fit(people, "dp-apvi", epsilon=1, delta=1e-4, adjacency="add-remove", key=0)
        with pytest.warns(PrivacyWarning, match="can be replayed"):
            privrl.fit(folder / "people.parquet", "dp-apvi", schema=SCHEMA, **dict(self.budget), key=0)

    def test_a_store_may_be_a_path(self, people: privrl.data.Episodes, tmp_path: Path) -> None:
        first = privrl.fit(people, "dp-apvi", **dict(self.budget), store=tmp_path / "store.db")
        same(first, privrl.fit(people, "dp-apvi", **dict(self.budget), store=tmp_path / "store.db"))

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({"schema": SCHEMA}, "`schema` describes a table in files"),
            ({"episodes": 3}, "are for simulated people"),
            ({"practice": "env"}, "`evaluate` is missing"),
            ({"require_better": True}, "`evaluate` is missing"),
            ({"evaluate": 0.3, "require_better": True, "release_anyway": True}, "Give one of them"),
            ({"evaluate": 0.3, "practice": "env"}, "is for simulated people"),
            ({"evaluate": 0.3, "return_range": (0.0, 9.0)}, "add up to at most 4"),
            ({"data": "env:riverswim"}, "`episodes` is missing"),
            ({"data": "env:riverswim", "episodes": 0}, "must be at least 1"),
            ({"data": "env:riverswim", "episodes": 9, "terminal": (1,)}, "part of the schema or of the environment"),
            ({"data": "env:riverswim", "episodes": 9, "store": "s.db"}, "these are simulated"),
            ({"data": "env:lq-scalar", "episodes": 9}, "is a linear system"),
            ({"data": "people.parquet"}, "`schema` is missing"),
            ({"data": "people.parquet", "schema": {"unit": "u"}}, "A table needs `step`, `state`"),
            ({"data": "people.parquet", "schema": {"units": "u"}}, "unknown line `units`"),
            ({"data": "people.parquet", "schema": SCHEMA, "key": jax.random.key(0)}, "is a JAX key"),
            ({"data": "people.parquet", "schema": SCHEMA, "learner": "dp-lap"}, "learns from measurements"),
            ({"learner": "dp-ucbvi"}, "learns while people take part"),
        ],
    )
    def test_arguments_that_contradict_each_other(
        self, arguments: dict[str, Any], words: str, people: privrl.data.Episodes
    ) -> None:
        given = {"data": people, "learner": "dp-apvi", **dict(self.budget), **arguments}
        with pytest.raises(ValueError, match=words):
            privrl.fit(**given)


class TestEvaluateAndChoose:
    @pytest.mark.filterwarnings("ignore::privrl.privacy.accounting.privacy_budget.PrivacyWarning")
    def test_a_table_and_a_folder_on_the_command_line(self, folder: Path, tmp_path: Path) -> None:
        table, budget = folder / "people.parquet", {"epsilon": 1.0, "delta": 1e-6}
        privrl.fit(table, "dp-apvi", schema=SCHEMA, **budget, key=3).save(tmp_path / "policy")
        short = privrl.evaluate(table, tmp_path / "policy", schema={"unit": "unit_id"}, **budget, key=4)
        held = privrl.data.read_parquet(table, **TableDescription.read(SCHEMA).columns)
        result = privrl.Result.load(tmp_path / "policy")
        long = privrl.evaluate(held, result, CENTRAL, unit="unit_id", key=jax.random.key(4))
        assert short == long
        options = ("--epsilon", "1", "--delta", "1e-6", "--seed", "4", "--unit", "unit_id", "--out", tmp_path / "out")
        assert call("evaluate", table, tmp_path / "policy", "--spend-anyway", *options).code == 0
        short.save(tmp_path / "again")
        for path in (tmp_path / "out").iterdir():
            assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()
        with pytest.raises(ValueError, match="`unit` is missing"):
            privrl.evaluate(table, tmp_path / "policy", **budget)

    def test_a_budget_stands_for_a_curator(self, people: privrl.data.Episodes) -> None:
        actions = np.ones(3, int)
        short = privrl.evaluate(people, actions, epsilon=1.0, delta=1e-6, key=4)
        assert short == privrl.evaluate(people, actions, CENTRAL, key=jax.random.key(4))
        with pytest.raises(TypeError, match="Give one of them"):
            privrl.evaluate(people, actions, CENTRAL, epsilon=1.0)
        with pytest.raises(BudgetError, match="An evaluation needs a budget"):
            privrl.evaluate(people, actions)
        with pytest.raises(BudgetError, match="A choice needs a budget"):
            privrl.choose(people, [actions, None])
        with pytest.raises(ValueError, match="people would choose"):
            privrl.choose(people, [actions, None], epsilon=1.0, delta=1e-6)


class TestDisplay:
    def test_results_runs_and_certificates_are_one_line(self, people: privrl.data.Episodes) -> None:
        result = privrl.fit(people, "dp-apvi", epsilon=1, delta=1e-6, evaluate=0.3, key=1)
        privacy = "central privacy, epsilon 1, delta 1e-06, simulated noise"
        assert repr(result) == f"Result(withheld, AssistedPolicy, Evaluated, {privacy}, evaluation: not shown)"
        assert (
            repr(result.withheld("no")) == f"Result(withheld, no policy, Evaluated, {privacy}, evaluation: not shown)"
        )
        assert repr(result.certificate) == f"Certificate(Evaluated, {privacy})"
        run = privrl.run("riverswim", "ucbvi", episodes=20, key=0)
        assert repr(run) == "Run(UCBVI, 1 seed of 20 episodes, no privacy)"
        assert "<td>20</td>" in run._repr_html_() and "no privacy" in run._repr_html_()

    def test_nothing_becomes_a_tag_or_moves_the_cursor(self, people: privrl.data.Episodes) -> None:
        """Text of a certificate may come from a file of anyone."""
        result = privrl.fit(people, "dp-apvi", epsilon=1, delta=1e-6, key=1)
        hostile = dataclasses.replace(result.certificate, learner="<b>\x1b[2J", unit="<script>", opened="&<")
        for shown in (hostile, dataclasses.replace(result, certificate=hostile)):
            assert "\x1b" not in repr(shown)
            page = shown._repr_html_()
            assert "<script>" not in page and "<b>" not in page and "&lt;script&gt;" in page
        unknown = result.certificate.to_json() | {"noise_source": "&<"}
        with pytest.raises(ValueError, match="noise_source"):
            privrl.Certificate.from_json(unknown)

    def test_a_secret_number_of_people_is_not_shown(self, people: privrl.data.Episodes) -> None:
        public = privrl.fit(people, "dp-apvi", epsilon=1, delta=1e-6, key=1)
        secret = privrl.fit(people, "dp-apvi", epsilon=1, delta=1e-6, adjacency="add-remove", key=1)
        assert "<th>People</th><td>400</td>" in public._repr_html_() and "People" not in secret._repr_html_()
