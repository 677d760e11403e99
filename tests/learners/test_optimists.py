"""Optimistic learners on counts: the estimated model by hand, exact counts, and learning against random actions."""

import jax.numpy as jnp
import numpy as np
import pytest

import privrl
from privrl.contracts.release import Release
from privrl.learners.tabular import bernstein_ucbvi, hoeffding_ucbvi, obi, pucb
from privrl.learners.tabular.hoeffding_ucbvi import HoeffdingUCBVI
from privrl.learners.tabular.obi import OBI
from privrl.learners.tabular.optimistic_counts import AbstractOptimist, CountedModel
from privrl.mdp.planning import optimal_values
from privrl.privacy.noise.distributions import GaussianNoise, LaplaceNoise
from privrl.recipes.all_recipes import get, recipes

WORLD = privrl.envs.make("riverswim", states=3, horizon=5)
OURS = {
    name: recipe
    for name, recipe in recipes.items()
    if issubclass(recipe.algorithm.learner, AbstractOptimist) and recipe.variant is None
}
NAMES, JOINT, LOCAL = ([n for n, r in OURS.items() if r.trust == trust] for trust in ("none", "central", "local"))


def released(learner, people, scale=0.0):
    """Counts in the proportions of the world's kernel, with noise of this scale that happens to be 0."""
    P = np.asarray(WORLD.mdp.transition[0])
    transitions = people * P
    noise = GaussianNoise(scale, P.shape)
    found = {"transitions": Release(jnp.asarray(transitions), noise)}
    if learner.releases_visits:
        visits = transitions.sum(axis=-1)
        found["visits"] = Release(jnp.asarray(visits), GaussianNoise(scale, visits.shape))
    return found


@pytest.mark.parametrize("name", [name for name in NAMES if name != "ucb-po"])
def test_with_exact_counts_of_many_people_the_plan_is_optimal(name):
    learner = get(name).build(WORLD)
    _, plan = learner.plan(None, released(learner, 1e9), None, jnp.asarray(10))
    assert float(WORLD.regret(plan.policy)) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_values_are_optimistic_and_widths_shrink_with_people_and_grow_with_noise(name):
    learner = get(name).build(WORLD)
    best = np.asarray(optimal_values(WORLD.mdp)[1])[0]

    def values(people, scale):
        made = learner.model(released(learner, people, scale))
        module = __import__(type(learner).__module__, fromlist=["x"])
        width = getattr(module, "_width", None) or module.hoeffding_width
        return np.asarray(learner.optimistic_values(made, width))[0]

    few, many, noisy = values(100.0, 0.0), values(10_000.0, 0.0), values(10_000.0, 200.0)
    assert (few >= best - 1e-12).all() and (many >= best - 1e-12).all()
    assert (few >= many - 1e-12).all() and few.sum() > many.sum()
    assert (noisy >= many - 1e-12).all() and noisy.sum() > many.sum()


@pytest.mark.parametrize(("people", "noise"), [(40, 0.0), (60, 3.0), (400, 20.0)])
def test_widths_cover_sampling_and_noise(people, noise):
    """Of 4,000 draws of the counts of one state and action, more than 85% of the upper ends are above P* V."""
    rng, truth, V = np.random.default_rng(0), np.array([0.4, 0.3, 0.2, 0.1]), jnp.arange(4.0)[::-1]
    shape = (4, 1_000)  # draws, as states and actions
    n = rng.multinomial(people, truth, shape) + noise * rng.normal(size=(*shape, 4))
    N = people + noise * rng.normal(size=shape)
    counts, visits = (Release(jnp.asarray(x), GaussianNoise(noise, x.shape)) for x in (n, N))
    for module in (pucb, obi, hoeffding_ucbvi, bernstein_ucbvi):
        width = getattr(module, "_width", None) or module.hoeffding_width
        both = visits if module in (pucb, bernstein_ucbvi) else None
        model = CountedModel.from_releases(counts, (1, *shape), both).stage(jnp.asarray(0))
        PV = model.kernel @ V
        upper = PV + width(model, V, (model.kernel * (V[None, None] - PV[..., None]) ** 2).sum(axis=-1))
        assert float(model.known.mean()) > 0.99
        assert float((upper >= truth @ V)[model.known].mean()) > 0.85, module.__name__


def test_counts_that_cannot_be_told_from_noise_are_unknown():
    n = jnp.array([[[3.0, 1.0], [40.0, 10.0]], [[0.0, 0.0], [90.0, 10.0]]])
    model = CountedModel.from_releases(Release(n, LaplaceNoise(2.0, (2, 2, 2))), (1, 2, 2))
    np.testing.assert_array_equal(np.asarray(model.known), [[[False, True], [False, True]]])
    np.testing.assert_allclose(np.asarray(model.kernel)[0, 0, 1], [0.8, 0.2])
    np.testing.assert_allclose(np.asarray(model.cell_noise), 2.0 * np.sqrt(2.0))
    np.testing.assert_allclose(np.asarray(model.visit_noise), 4.0)


def test_visits_make_transitions_consistent():
    n = jnp.array([[[-5.0, 60.0], [40.0, 10.0]], [[30.0, 30.0], [90.0, 10.0]]])
    visits = Release(jnp.full((2, 2), 50.0), GaussianNoise(1.0, (2, 2)))
    model = CountedModel.from_releases(Release(n, GaussianNoise(1.0, (2, 2, 2))), (1, 2, 2), visits)
    P = np.asarray(model.kernel)
    assert (P >= 0).all()
    np.testing.assert_allclose(P.sum(axis=-1), 1.0)
    np.testing.assert_allclose(P[0, 0, 0], [0.0, 1.0])


@pytest.mark.slow
@pytest.mark.parametrize("name", [*JOINT, *LOCAL])
def test_they_learn_on_riverswim(name):
    """Well below random actions: 10,000 people on three states, at epsilon 10."""
    delta = {} if name in LOCAL else {"delta": 1e-5}
    world = privrl.envs.make("riverswim", states=3)
    run = privrl.run(world, name, epsilon=10.0, episodes=10_000, seeds=4, key=0, **delta)
    uniform = 10_000 * float(world.regret(world.uniform_policy()))
    assert (run.total_regret < 0.5 * uniform).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", JOINT)
def test_they_learn_with_epsilon_alone(name):
    world = privrl.envs.make("riverswim", states=3)
    run = privrl.run(world, name, epsilon=10.0, episodes=10_000, seeds=4, key=0)
    assert run.certificate.delta == 0.0
    assert (run.total_regret < 0.6 * 10_000 * float(world.regret(world.uniform_policy()))).all()


class PooledOBI(OBI):
    """OBI on counts of all visits."""

    stationary_counting = "pooled"


class FirstVisits(HoeffdingUCBVI):
    """Hoeffding-UCBVI on counts of first visits."""

    stationary_counting = "first-visit"


@pytest.mark.slow
def test_counts_of_first_visits_are_what_makes_a_learner_better():
    """With either width, at epsilon 1, beyond four standard errors."""
    world = privrl.envs.make("riverswim", states=5, horizon=10)
    how = {"episodes": 20_000, "seeds": 10, "key": 0}
    kinds = (OBI, PooledOBI, FirstVisits, HoeffdingUCBVI)
    budget = privrl.Central(epsilon=1.0, delta=1e-5)
    runs = [privrl.run(world, kind(world.rewards, world.horizon), budget, **how).total_regret for kind in kinds]
    (obi, error), *others = [(run.mean(), run.std(ddof=1) / np.sqrt(10)) for run in runs]
    (pooled, its), (first, _), (hoeffding, theirs) = others
    assert obi < pooled - 4 * np.hypot(error, its)
    assert first < hoeffding - 4 * np.hypot(error, theirs)


def test_every_recipe_cites_a_paper_as_its_source():
    assert NAMES and JOINT and LOCAL
    for recipe in OURS.values():
        assert recipe.algorithm.cites and "as published" not in recipe.label
