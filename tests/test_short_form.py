"""Names of recipes and worlds, and integer keys: the same results as with objects, and clear errors for mixtures."""

from pathlib import Path

import jax
import numpy as np
import pytest

import privrl
from privrl.privacy.accounting.budget import BudgetError
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
