"""The zoo: what is said of each world is true of it, and the two lists are kept apart."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privrl import envs
from privrl.cli.main import main
from privrl.envs.patients.grid_table import GridTable
from privrl.envs.zoo.catalogue import CHOOSING, REPORTED, WORLDS, World
from privrl.envs.zoo.endings import Endings
from privrl.envs.zoo.grid_with_holes import GridWithHoles
from privrl.envs.zoo.hidden_state import HiddenEnv
from privrl.envs.zoo.in_flight import InFlight
from privrl.mdp.planning import optimal_value
from privrl.mdp.types import TabularMDP

LARGE = {"icu-sepsis", "endings-400x5", "endings-1000x4", "severity-108", "severity-144"}
# Of each kind one size is quick.
OTHERS = {
    "endings-50x4",
    "endings-60x4",
    "endings-150x8",
    "in-flight-40x5",
    "in-flight-150x4",
    "cut-120x5",
    "holes-50x4",
}
SIMULATED = [name for name, world in WORLDS.items() if world.kind == "discretised"]
FINITE = [
    pytest.param(name, marks=pytest.mark.slow) if name in LARGE | OTHERS else name
    for name in WORLDS
    if name not in SIMULATED
]


def test_the_lists_share_no_world_and_have_all_kinds() -> None:
    assert not CHOOSING.keys() & REPORTED.keys() and len(WORLDS) >= 14
    for worlds in (CHOOSING, REPORTED):
        assert {w.kind for w in worlds.values()} == {"endings", "in flight", "hidden severity", "discretised"}
    sizes = [w.sizes[0] for w in WORLDS.values()]
    assert min(sizes) == 40 and max(sizes) == 1000
    built = [str(w.generate) for w in WORLDS.values()]
    assert len(set(built)) == len(built)


def worst(world: World) -> float:
    """The smallest value of any policy that sees everything."""
    mdp = world.env.full.mdp if isinstance(world.env, HiddenEnv) else world.env.mdp
    return -float(optimal_value(TabularMDP(mdp.transition, -mdp.reward, mdp.initial, mdp.horizon)))


@pytest.mark.parametrize("name", FINITE)
def test_values_of_finite_worlds_are_exact(name: str) -> None:
    world = WORLDS[name]
    env = world.env
    assert (env.num_states, env.num_actions, env.horizon) == world.sizes
    practice = float(env.value(env.behaviour_policy()))
    best = env.value(env.best_policy()) if isinstance(env, HiddenEnv) else env.optimal_value
    np.testing.assert_allclose((practice, float(best), worst(world)), world.values, atol=1e-6)
    assert world.share(practice) == pytest.approx(0, abs=1e-4) and world.range > 0
    stays = env.sample(env.behaviour_policy(), 4000, jax.random.key(0))
    returns = np.asarray(stays.rewards).sum(axis=1)
    assert abs(returns.mean() - practice) < 4.5 * returns.std() / np.sqrt(4000)
    mode = world.evaluate(env.mode_policy())
    assert mode.error == 0 and world.values[2] - 1e-4 < mode.value < world.best + 1e-4
    del world.__dict__["env"]  # large worlds need not stay in memory


@pytest.mark.slow
@pytest.mark.parametrize("name", SIMULATED)
def test_values_of_discretised_worlds_are_simulated_closely(name: str) -> None:
    world = WORLDS[name]
    env = world.env
    assert isinstance(env, GridTable) and (env.num_states, env.num_actions, env.horizon) == world.sizes
    found = [env.estimate(actor) for actor in (env.behaviour_policy(), env.patients.tuned)]
    np.testing.assert_allclose([f.value for f in found], world.values[:2], atol=5.1e-5)
    always = [world.evaluate(np.broadcast_to(one, world.sizes[:2])) for one in np.eye(world.sizes[1])]
    assert min(f.value for f in always) == pytest.approx(world.values[2], abs=5.1e-5)
    others = [env.estimate(policy) for policy in (env.uniform_policy(), env.mode_policy(), env.recorded_policy())]
    assert max(f.error for f in (*found, *always, *others)) <= 0.0005


def test_a_policy_may_or_may_not_know_the_step() -> None:
    world = WORLDS["endings-50x4"]
    practice = np.asarray(world.env.behaviour)
    by_step = np.broadcast_to(practice, (20, 50, 4))
    assert world.evaluate(practice).value == world.evaluate(by_step).value == pytest.approx(world.practice, abs=1e-4)
    with pytest.raises(ValueError, match=r"shape \[4, 50\]; `endings-50x4` needs \[50, 4\] or \[20, 50, 4\]"):
        world.evaluate(practice.T)


def test_worlds_have_names_of_their_own() -> None:
    env = envs.make("severity-48")
    assert env.name == "severity-48" and envs.make(env.name, seed=0, **dict(env.arguments)).num_states == 50
    with pytest.raises(ValueError, match="fixed world without arguments or a seed"):
        envs.make("severity-48", seed=3)
    with pytest.raises(ValueError, match="Did you mean .*`severity-48`"):
        envs.make("severity-84")
    assert WORLDS["severity-48"].public == {
        "num_states": 50,
        "num_actions": 4,
        "horizon": 20,
        "terminal": (48, 49),
        "rewards_at_end": True,
    }
    assert not WORLDS["in-flight-60x4"].public["rewards_at_end"]


def test_generators_make_many_worlds() -> None:
    for build in (Endings, InFlight, GridWithHoles):
        first, second, again = (np.asarray(build(seed=seed).mdp.transition) for seed in (0, 1, 0))
        assert not np.array_equal(first, second) and np.array_equal(first, again)
    text = envs.make("endings", states="20", actions="3", practice="rare", seed=4)
    np.testing.assert_array_equal(text.behaviour, Endings(20, 3, practice="rare", seed=4).behaviour)
    hidden = envs.make("hidden-severity", signs="3x2", severities="3", seed=2)
    assert hidden.num_states == 8 and hidden.seed == 2
    with pytest.raises(ValueError, match="`practice` is 'idle'; it must be 'habits'"):
        envs.make("endings", practice="idle")
    with pytest.raises(ValueError, match="`holes` is 0.7"):
        GridWithHoles(holes=0.7)


def test_practice_is_of_the_kind_that_is_said() -> None:
    best = {}
    for kind in ("habits", "expert", "rare"):
        env = Endings(100, 6, practice=kind, seed=1)
        values = np.asarray(env.mdp.reward)[0]
        assert values.shape == (100, 6)
        optimum = float(env.optimal_value)
        best[kind] = (optimum - float(env.value(env.behaviour_policy()))) / optimum
        behaviour = np.asarray(env.behaviour)
        np.testing.assert_allclose(behaviour.sum(axis=1), 1.0)
        if kind == "rare":
            assert np.all(np.isclose(behaviour, 0.01).sum(axis=1) == 3)
    assert best["expert"] < 0.15 < best["habits"] and best["expert"] < 0.15 < best["rare"]


def test_short_horizons_cut_many_stays() -> None:
    for name in ("cut-80x4", "cut-120x5"):
        env = WORLDS[name].env
        stays = env.sample(env.behaviour_policy(), 2000, jax.random.key(1))
        last = np.asarray(stays.next_states)[np.arange(2000), np.asarray(stays.length) - 1]
        assert np.mean(~np.isin(last, env.terminal)) > 0.35


def test_holes_leave_a_way_to_the_corner() -> None:
    for seed in range(5):
        env = GridWithHoles(6, 0.35, seed=seed)
        P = np.asarray(env.mdp.transition)[0].max(axis=1) > 0
        reached = np.zeros(37, bool)
        reached[0] = True
        for _ in range(36):
            reached |= reached @ P
        assert reached[35] and env.terminal == (35, 36)
        assert float(env.value(env.uniform_policy())) < float(env.optimal_value)
        assert jnp.all(env.mdp.transition[0, 36, :, 36] == 1)


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(list(arguments))
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def test_the_command_line_lists_the_zoo(capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = called(capsys, "list", "envs", "--offline", "--json")
    listed = json.loads(printed)["envs"]
    assert code == 0 and [entry["name"] for entry in listed] == list(WORLDS)
    assert {entry["name"] for entry in listed if entry["for"] == "choosing"} == CHOOSING.keys()
    code, printed = called(capsys, "list", "figures", "--offline")
    assert code != 0 and "Use `privrl list envs --offline`" in printed


BUDGET = ("--epsilon", "3", "--delta", "1e-6", "--episodes", "500", "--seed", "0", "--json")


@pytest.mark.slow
def test_policies_are_learnt_where_severity_is_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    world = ("env:hidden-severity", "--env-arg", "signs=2x2", "--env-arg", "severities=2", "--env-arg", "doses=2")
    code, printed = called(capsys, "fit", *world, "--recipe", "dp-tdfp", *BUDGET)
    assert code == 0, printed
    found = json.loads(printed)
    env = envs.make("hidden-severity", signs="2x2", severities=2, doses=2)
    known = {"optimal": env.optimal_value, "behaviour": env.value(env.behaviour_policy())}
    assert {name: found["baselines"][name] for name in known} == pytest.approx({k: float(v) for k, v in known.items()})
    assert found["exact"] and 0 <= found["value"][0] <= known["optimal"]


@pytest.mark.slow
def test_policies_are_learnt_on_a_grid(capsys: pytest.CaptureFixture[str]) -> None:
    world = ("env:vitals-table", "--env-arg", "horizon=4", "--env-arg", "evaluated=4000")
    code, printed = called(capsys, "fit", *world, "--recipe", "dp-tdfp", *BUDGET)
    assert code == 0, printed
    assert not json.loads(printed)["exact"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fit", "env:vitals", "--recipe", "dp-tdfp", *BUDGET), "requires finite worlds; `vitals` is of another kind"),
        (
            ("run", "ucbvi", "--env", "severity-48", "--episodes", "9"),
            "`severity-48` people are simulated one by one",
        ),
    ],
)
def test_recipes_for_other_worlds_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    code, printed = called(capsys, *arguments)
    assert code != 0 and message in " ".join(printed.split())
