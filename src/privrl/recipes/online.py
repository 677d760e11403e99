"""Recipes that learn while people take part, one after another."""

from typing import Any

import jax.numpy as jnp

from privrl.learners.linear.lsvi_ucb import LSVIUCB
from privrl.learners.linear.lsvi_ucb_luyo import LuyoLSVIUCB
from privrl.learners.linear.lsvi_ucb_ngo import NgoLSVIUCB
from privrl.learners.linear.lsvi_ucb_plus_plus import LSVIUCBPlusPlus
from privrl.learners.linear.ucrl_vtr import UCRLVTR
from privrl.learners.published import lsvi_noise, ucrl_vtr_noise
from privrl.learners.tabular.ucbvi import UCBVI
from privrl.recipes.recipe import Problem, Recipe


def _ucbvi_in_batches(problem: Problem) -> UCBVI:
    """Blocks of at least 500: the smallest one bounds what a shuffler can hide."""
    return _ucbvi(problem, first_block=500)


def _ucbvi(problem: Problem, **settings: Any) -> UCBVI:
    rewards = problem.rewards
    if rewards is None:
        if problem.arrival_rewards is None:
            raise ValueError("`ucbvi` needs known rewards; this problem has none.")
        raise ValueError("`ucbvi` needs rewards of (state, action); this world pays on arrival.")
    return UCBVI(jnp.asarray(rewards), problem.horizon, stationary=problem.stationary, **settings)


def _public(problem: Problem) -> dict[str, Any]:
    """What is publicly known about rewards and endings."""
    known = {"rewards": problem.rewards, "arrival_rewards": problem.arrival_rewards}
    return {**known, "terminal": problem.terminal}


def _lsvi_ucb(problem: Problem) -> LSVIUCB:
    return LSVIUCB(problem.features, problem.horizon, **_public(problem))


def _lsvi_ucb_weighted(problem: Problem) -> LSVIUCB:
    """With the variance weights of [sahu Algorithm 1, lines 24 to 26]."""
    return LSVIUCB(
        problem.features, problem.horizon, bonus=jnp.asarray(1.0), smallest_weight=jnp.asarray(0.5), **_public(problem)
    )


def _lsvi_ucb_plus_plus(problem: Problem) -> LSVIUCBPlusPlus:
    return LSVIUCBPlusPlus(problem.features, problem.horizon, rewards=problem.rewards, switching="always")


def _lsvi_ucb_plus_plus_paper(problem: Problem) -> LSVIUCBPlusPlus:
    return LSVIUCBPlusPlus.paper(problem.features, problem.horizon, rewards=problem.rewards)


def _luyo_paper(problem: Problem) -> LuyoLSVIUCB:
    return LuyoLSVIUCB(problem.features, problem.horizon, rewards=problem.rewards)


def _ngo_paper(problem: Problem) -> NgoLSVIUCB:
    return NgoLSVIUCB(problem.features, problem.horizon, rewards=problem.rewards)


def _ucrl_vtr(problem: Problem, **settings: Any) -> UCRLVTR:
    if problem.rewards is None:
        raise ValueError("UCRL-VTR needs known rewards of (state, action); this problem has none.")
    settings |= {"stationary": problem.stationary, "terminal": problem.terminal}
    return UCRLVTR(jnp.asarray(problem.rewards), problem.horizon, **settings)


def _ucrl_vtr_paper(problem: Problem) -> UCRLVTR:
    return _ucrl_vtr(problem, calibration="paper")


ONLINE = (
    Recipe("lsvi-ucb", "online", "none", "optimistic least squares on transition moments", _lsvi_ucb),
    Recipe("dp-lsvi-ucb", "online", "central", "LSVI-UCB on continually released moments, joint privacy", _lsvi_ucb),
    Recipe("lsvi-ucb++", "online", "none", "LSVI-UCB++, a plan after every episode", _lsvi_ucb_plus_plus),
    Recipe(
        "dp-lsvi-ucb++",
        "online",
        "central",
        "LSVI-UCB on continually released moments with the variance weights of LSVI-UCB++",
        _lsvi_ucb_weighted,
    ),
    Recipe(
        "dp-lsvi-ucb++@paper",
        "online",
        "central",
        "LSVI-UCB++ with the paper's noise made fresh: everything released after every user",
        _lsvi_ucb_plus_plus_paper,
        published=lsvi_noise,
        source="sahu",
    ),
    Recipe(
        "dp-lsvi-ucb-luyo@paper",
        "online",
        "central",
        "private LSVI-UCB in static batches (Luyo et al. 2021), reconstructed; batches as for epsilon 1",
        _luyo_paper,
        published=lsvi_noise,
        source="luyo et al., reconstructed",
        continual="tree",
    ),
    Recipe(
        "dp-lsvi-ucb-ngo@paper",
        "online",
        "central",
        "private LSVI-UCB in adaptive batches (Ngo et al. 2022), reconstructed",
        _ngo_paper,
        published=lsvi_noise,
        source="ngo et al., reconstructed",
        continual="tree",
    ),
    Recipe("ucbvi", "online", "none", "optimistic value iteration on counts", _ucbvi),
    Recipe("dp-ucbvi", "online", "central", "UCBVI on continually released counts, joint privacy", _ucbvi),
    Recipe("ldp-ucbvi", "online", "local", "UCBVI on randomised responses, nobody is trusted", _ucbvi, pure=True),
    Recipe(
        "shuffle-ucbvi",
        "online",
        "shuffle",
        "UCBVI on answers that a trusted shuffler mixes, at least 500 people at a time",
        _ucbvi_in_batches,
    ),
    Recipe("ucrl-vtr", "online", "none", "optimistic value-targeted regression in mixtures of kernels", _ucrl_vtr),
    Recipe("ldp-ucrl-vtr", "online", "local", "UCRL-VTR with tight local noise; does not learn", _ucrl_vtr),
    Recipe(
        "ldp-ucrl-vtr@paper",
        "online",
        "local",
        "UCRL-VTR with the printed local noise; does not learn",
        _ucrl_vtr_paper,
        published=ucrl_vtr_noise,
        claims_epsilon=True,
        source="liao-he-gu",
    ),
)
