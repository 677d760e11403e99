"""The plain renderings that `make bench` measures against compute what privrl computes; nothing is timed here."""

import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bench import __main__ as table
from bench import cluster, offline, online, recipes, roofline, scale, tables, timing, zoo
from bench.as_written import apvi, counts, greedy, lsvi_ucb, vapvi
from bench.kept_ratios import TOLERANCE, Kept

import privrl
from privrl.audit.worlds import tiny_world
from privrl.cli.bench import bench
from privrl.envs.zoo.catalogue import WORLDS
from privrl.executors.executor import InProcess
from privrl.learners.linear.vapvi import VAPVI
from privrl.learners.tabular.apvi import APVI
from privrl.mdp.types import TabularPolicy
from privrl.statistics.counts import TransitionCounts


@pytest.mark.slow
@pytest.mark.parametrize("tabulated", [False, True])
def test_a_plan_as_written_is_the_learners_plan(tabulated):
    env = tiny_world()
    people, learner = offline.sampled(env, 30), online.agent(env)
    public = (np.asarray(env.features.table), np.asarray(env.rewards), float(learner.bonus), float(learner.ridge))
    Q = lsvi_ucb(people, *public, tabulated=tabulated)
    np.testing.assert_allclose(Q, online.action_values(learner, people), rtol=1e-8, atol=1e-8)
    assert np.ptp(Q[0]) > 0.1  # not all cut to one bound


@pytest.mark.slow  # `make bench` checks the same at its own size
def test_careful_numpy_meets_the_same_people_and_ends_with_the_same_policy():
    env = tiny_world()
    learner, key, episodes = online.agent(env), jax.random.key(3), 12
    run = privrl.run(env, learner, privrl.NonPrivate(), episodes=episodes, seeds=2, key=key)
    for seed, own in enumerate(jax.random.split(key, (1, 2))[0]):
        total, met = online.careful(env, learner, online.luck(env, episodes, own))
        np.testing.assert_allclose(total, run.total_regret[seed], rtol=1e-8)
        public = (np.asarray(env.features.table), np.asarray(env.rewards), float(learner.bonus), float(learner.ridge))
        np.testing.assert_allclose(greedy(lsvi_ucb(met, *public)), run.policy.probabilities[seed], atol=1e-8)


@pytest.mark.slow
def test_vapvi_as_written_is_the_fit():
    env = privrl.envs.SyntheticLinear(horizon=5)  # long enough for variances above 1 to be possible
    people, learner = offline.sampled(env, 200), VAPVI(env.features, 5, bonus=0.01, calibration="paper")
    pi = vapvi(people, np.asarray(env.features.table), learner.bonus, learner.ridge)
    np.testing.assert_allclose(pi, offline.fitted(env, people, learner), atol=1e-8)
    assert not np.allclose(pi, 1 / env.num_actions)


def test_apvi_as_written_is_the_fit():
    env = tiny_world()
    people = offline.sampled(env, 500)
    learner = APVI(env.num_states, env.num_actions, env.horizon, rewards=env.rewards, calibration="paper")
    pi = apvi(people, np.asarray(env.rewards), learner.failure)
    np.testing.assert_allclose(pi, offline.fitted(env, people, learner), atol=1e-8)
    assert not np.allclose(pi, 1 / env.num_actions)


def test_counts_one_by_one_are_the_statistic():
    env = tiny_world()
    people, (S, A, H) = offline.sampled(env, 200), (env.num_states, env.num_actions, env.horizon)
    rows = jax.tree.map(jax.numpy.asarray, offline.dataset(env, people).transitions())
    ours = TransitionCounts(S, A, H).of_rows(rows)
    np.testing.assert_array_equal(counts(people, S, A), ours)


def test_growth_and_agreement():
    assert timing.exponent({10: 3.0, 100: 30.0, 1_000: 300.0}) == pytest.approx(1.0)
    assert timing.exponent({10: 7.0, 1_000: 7.0}) == pytest.approx(0.0, abs=1e-12)
    timing.same([1.0], [1.0 + 1e-10])
    with pytest.raises(SystemExit, match="disagree"):
        timing.same([1.0], [1.0 + 1e-6])


def test_what_became_slower_than_the_kept_ratios_is_named(tmp_path):
    file = tmp_path / "ratios.json"
    Kept(1.5, {"sums": 3.0, "plans": 8.0, "gone": 2.0, "broken": 1.0}).write(file)
    kept = Kept.from_file(file)
    measured = {"sums": 2.01, "plans": 5.3, "broken": float("nan"), "new": 7.0}
    assert list(kept.slower(measured)) == [
        "slower: plans: ratio 5.3, kept 8",
        "not measured: gone (kept ratio 2)",
        "slower: broken: ratio nan, kept 1",
    ]
    assert list(kept.new(measured)) == ["no kept ratio yet: new: 7"]
    assert not list(kept.slower({"sums": 2.0, "plans": 100.0, "gone": 2.0, "broken": 1.0}))


def test_the_bench_fails_if_a_row_became_slower(monkeypatch, capsys):
    kept = Kept(1.5, {"sums": 3.0, "plans": 1.0})
    monkeypatch.setattr(Kept, "from_file", lambda: kept)
    monkeypatch.setattr(table, "rows", lambda: iter([("sums", 2.0, 1.0), ("plans", 1.0, 1.0)]))
    monkeypatch.setattr(table.noise, "timing", lambda: None)
    monkeypatch.setattr(table.scaling, "lines", lambda: iter(()))
    table.main()
    assert "Nothing became slower: 2 kept ratios, each of which may fall by a factor of 1.5." in capsys.readouterr().out
    monkeypatch.setattr(table, "rows", lambda: iter([("sums", 2.0, 1.1), ("plans", 1.0, 1.0)]))
    with pytest.raises(SystemExit) as stopped:
        table.main()
    assert stopped.value.code == 1
    said = capsys.readouterr().out
    assert "slower: sums: ratio 1.82, kept 3" in said and "1 rows became slower" in said


def test_the_kept_ratios_can_be_read():
    kept = Kept.from_file()
    assert kept.tolerance == TOLERANCE and len(kept.ratios) > 20
    assert all(ratio > 0 for ratio in kept.ratios.values())


def test_xla_counts_a_loop_once():
    """What `bench.roofline` relies on; if it changes, its charge for an episode is wrong."""

    def cost(steps: int) -> roofline.Cost:
        def body(x, _):
            return jax.numpy.sin(x @ x), None

        looped = jax.jit(lambda x: jax.lax.scan(body, x, None, length=steps)[0])
        return roofline.Cost.of(looped.lower(jax.numpy.ones((8, 8))).compile())

    assert cost(10).flops == cost(1_000).flops >= 2 * 8**3
    assert cost(10).bytes == cost(1_000).bytes > 0


def test_the_rows_of_large_tables():
    """Ratios with what is asked of them, and tables as they are printed; from numbers that are known."""
    took = {"busier": 0.6, "both": 1.1, "driver": 0.1}
    found = {"rows": 1_000_000, "one": {"gradients": 1.0}, "refused": True}
    found |= {
        engine: {"gradients": took, "checked": 4e-7, "shards": 2} for engine in ("two processes", "two Dask workers")
    }
    found["fits"] = {"dp-fqi": {"releases": 21, "each": 2e-7, "minutes": 1.5}}
    rows = list(scale.cluster_rows(found))
    assert [round(plain / ours, 2) for _, plain, ours in rows] == [1.67, 11.0, 1.67, 11.0, 1.0]
    assert all("at least" in what for what, _, _ in rows)
    assert list(scale.model_lines(found))[-1] == "| `dp-fqi` | 21 | 0.200 | 1.5 |"
    fits = {("dp-fqi", files): {"cpu": files, "peak": 500.0, "rows": 10**6} for files in (2, 20)}
    assert list(scale.recipe_lines(fits))[-1] == "| `dp-fqi` | icu-sepsis | 1,000,000 | 20.0 | 20.00 | 500 |"
    assert scale.peak_row(fits, 2, 20)[1:] == (500.0, 500.0)
    assert (tables.files_for(1e6), tables.files_for(1e7), tables.files_for(10)) == (2, 19, 1)


@pytest.mark.slow
def test_large_tables_in_small(tmp_path, monkeypatch):
    """Tables are written and read again, and two workers give the sums of one process."""
    monkeypatch.setattr(tables, "WORLDS", {name: (make, 300) for name, (make, _) in tables.WORLDS.items()})
    for world in tables.WORLDS:
        (tmp_path / world).mkdir()
        for number in range(2):
            tables._write(tables._File(tmp_path, world, number))
        assert tables.opened(world, tmp_path)[1].num_units == 600
    _, whole = tables.opened("icu-sepsis", tmp_path)
    one = cluster.alone(whole)
    assert set(one) == set(cluster.RELEASES)
    assert set(cluster.shared(whole, InProcess(), one)) >= set(cluster.RELEASES)
    assert cluster.refused(whole, InProcess())
    assert recipes.fit("dp-pevi", tmp_path, 1)["rows"] == 300 * 20


def test_the_command_says_where_the_benchmark_is(monkeypatch, tmp_path):
    monkeypatch.setattr(privrl, "__file__", str(tmp_path / "lib" / "site-packages" / "privrl" / "__init__.py"))
    with pytest.raises(ValueError, match="make bench"):
        bench()


def test_the_command_runs_the_table_of_this_checkout(monkeypatch):
    asked = []
    monkeypatch.setattr(table, "main", lambda *, as_json: asked.append(as_json))
    monkeypatch.setattr(sys, "path", list(sys.path))
    bench(json=True)
    assert asked == [True]


def test_no_two_fits_of_the_zoo_share_noise(monkeypatch):
    """Over worlds, and within one study: the fit, and the evaluations with public and with estimated practice."""
    keys, worlds = [], [WORLDS["endings-50x4"], WORLDS["endings-60x4"]]

    def fit(people, learner, budget, *, key):
        keys.append(tuple(jax.random.key_data(key).tolist()))
        S, A, H = learner.space + (learner.horizon,)
        return SimpleNamespace(policy=TabularPolicy(jnp.full((H, S, A), 1.0 / A)), report={})

    def ask(*asked, key, **how):
        keys.append(tuple(jax.random.key_data(key).tolist()))
        return SimpleNamespace(found=None)

    monkeypatch.setattr(privrl, "fit", fit)
    monkeypatch.setattr(zoo, "ask_curator", ask)
    monkeypatch.setattr(zoo, "judged", lambda world, found, key: keys.append(tuple(jax.random.key_data(key).tolist())))
    for world in worlds:
        zoo.study(world, "dp-fqi", 20, 1.0, 0, evaluated=True)
        assert list(zoo.study(world, "dp-fqi", 20, 1.0, 0, evaluated=False)) == [*_LINE]
    assert len(keys) == 12 and len(set(keys)) == 10  # the learner's own noise is that of the seed


_LINE = ("world", "recipe", "people", "epsilon", "seed", "share", "whole", "whole_se")


def test_coverage_is_counted_by_kind_of_world_and_only_where_an_estimate_was_given():
    name = "severity-48"
    unit = WORLDS[name].range
    inside, outside = {"low": 0.0, "high": 0.2 * unit}, {"low": 0.3 * unit, "high": 0.4 * unit}
    lines = [
        {"world": name, "whole": 0.1, "estimated": {"assisted": 0.1, "gain": None, "model_gain": end}}
        for end in (inside, outside, None)
    ]
    assert list(zoo.coverage(lines))[2:] == ["| hidden severity | estimated | `model_gain` | 2 | 0.50 |"]
    assert list(zoo.coverage([{"world": name, "whole": 0.1}])) == []


def test_one_tenth_of_all_people_choose_in_the_zoo():
    world = WORLDS["endings-50x4"]
    assert 0.7 * zoo.learner_of("auto", world, 100_000).share == pytest.approx(0.1)
    assert zoo.learner_of("auto", world, 10_000).share is None


def test_what_auto_closes_is_set_against_the_best_single_recipe():
    shares = {("easy", "a"): (0.5, 0.7), ("easy", "b"): (0.4,), ("easy", "auto"): (0.54,), ("hard", "a"): (0.1,)}
    shares |= {("hard", "auto"): (0.0,), ("alone", "auto"): (0.9,), ("other", "b"): (0.8,), ("other", "auto"): (0.8,)}
    lines = [
        {"world": world, "recipe": recipe, "people": 10, "epsilon": 1.0, "share": share}
        for (world, recipe), found in shares.items()
        for share in found
    ]
    rows = list(zoo.choices(lines))
    assert rows[2:4] == ["| easy | 10 | 1 | a | 0.600 | 0.540 | 90% |", "| other | 10 | 1 | b | 0.800 | 0.800 | 100% |"]
    assert rows[4:] == ["\n10 people, 2 cells: 95% on average, 90% in the worst."]
    assert not list(zoo.choices(lines[:2]))
