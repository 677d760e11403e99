"""Recipes that learn while people take part, one after another."""

import math
from typing import Any

import jax.numpy as jnp

from privrl.contracts.learner import AbstractOnlineLearner
from privrl.learners.linear.lsvi_ucb import LSVIUCB
from privrl.learners.linear.lsvi_ucb_plus_plus import LSVIUCBPlusPlus
from privrl.learners.linear.lsvi_ucb_unweighted import LuyoLSVIUCB, NgoLSVIUCB
from privrl.learners.linear.lsvi_ucb_weighted import WeightedLSVIUCB
from privrl.learners.linear.ucrl_vtr import UCRLVTR
from privrl.learners.published_noise import lsvi_noise, ucrl_vtr_noise
from privrl.learners.tabular.bernstein_ucbvi import BernsteinUCBVI
from privrl.learners.tabular.hoeffding_ucbvi import HoeffdingUCBVI
from privrl.learners.tabular.obi import OBI
from privrl.learners.tabular.optimistic_counts import AbstractOptimist
from privrl.learners.tabular.pucb import PUCB
from privrl.learners.tabular.ucb_po import UCBPO
from privrl.learners.tabular.ucbvi import UCBVI
from privrl.recipes.papers import papers
from privrl.recipes.recipe import Algorithm, Problem, Recipe


def _ucbvi(problem: Problem, **settings: Any) -> UCBVI:
    rewards = problem.rewards
    if rewards is None:
        if problem.arrival_rewards is None:
            raise ValueError("`ucbvi` needs known rewards; this problem has none.")
        raise ValueError("`ucbvi` needs rewards of (state, action); this world pays on arrival.")
    return UCBVI(jnp.asarray(rewards), problem.horizon, stationary=problem.stationary, **settings)


def _ucbvi_in_batches(problem: Problem) -> UCBVI:
    """Blocks of at least 500: the smallest one bounds what a shuffler can hide."""
    return _ucbvi(problem, first_block=500)


def _optimist(learner: type[AbstractOptimist], name: str, paper: str) -> Algorithm:
    """One of the optimistic learners on counts, with the idea of a paper."""

    def build(problem: Problem) -> AbstractOptimist:
        if problem.rewards is None:
            raise ValueError(f"{name} needs known rewards of (state, action); this problem has none.")
        return learner(jnp.asarray(problem.rewards), problem.horizon, stationary=problem.stationary)

    releases = {"transitions": "which state came next", "visits": "how often each action was taken in each state"}
    return Algorithm(learner, "online", name=name, build=build, cites=(papers[paper],), releases=releases)


_MOST_FEATURES = 500  # `LSVIUCB` finds the eigenvectors of a matrix of this size for each step of each plan


def _auto_online(problem: Problem) -> AbstractOnlineLearner:
    """The learner whose counts stand out most from their noise, by public facts.

    Of K people, about K/(SA) take an action in a state at a given step, and K/d move a feature of dimension d. With the
    noise of one person's share, that is a signal of K/(SA sqrt(2HS)) against K/(d sqrt(2HS)): features win if d < SA.
    In a stationary world, first visits of all steps are one count of about sqrt(H) times the signal, which `OBI` uses.
    Both signals grow alike with people and epsilon, so these do not decide. If the kernel changes from step to step,
    no steps can be pooled, and `LSVIUCB` had less regret from the same counts than `UCBVI` in worlds that are not those
    of the figure `tabular` (docs/evidence/online.md). Rewards that must be learnt, or that are paid on arrival,
    need `LSVIUCB`, too.
    """
    pairs, dim = problem.num_states * problem.num_actions, problem.features.dim
    if problem.rewards is None or dim * math.sqrt(problem.horizon) < pairs:
        return _lsvi_ucb(problem)
    if problem.stationary:
        return _OBI.build(problem)  # type: ignore[return-value]
    return _lsvi_ucb(problem) if dim <= _MOST_FEATURES else _ucbvi(problem)


def _known(problem: Problem) -> dict[str, Any]:
    """What is publicly known about rewards and endings."""
    return {"rewards": problem.rewards, "arrival_rewards": problem.arrival_rewards, "terminal": problem.terminal}


def _lsvi_ucb(problem: Problem) -> LSVIUCB:
    return LSVIUCB(problem.features, problem.horizon, **_known(problem))


def _lsvi_ucb_weighted(problem: Problem) -> WeightedLSVIUCB:
    """With the variance weights of [sahu Algorithm 1, lines 24 to 26]."""
    return WeightedLSVIUCB(
        problem.features, problem.horizon, bonus=jnp.asarray(1.0), smallest_weight=jnp.asarray(0.5), **_known(problem)
    )


def _lsvi_ucb_plus_plus(problem: Problem) -> LSVIUCBPlusPlus:
    return LSVIUCBPlusPlus(problem.features, problem.horizon, rewards=problem.rewards, switching="always")


def _ucrl_vtr(problem: Problem, **settings: Any) -> UCRLVTR:
    if problem.rewards is None:
        raise ValueError("UCRL-VTR needs known rewards of (state, action); this problem has none.")
    settings |= {"stationary": problem.stationary, "terminal": problem.terminal}
    return UCRLVTR(jnp.asarray(problem.rewards), problem.horizon, **settings)


_ROUNDS = {
    "gram": "how often each direction of the features was seen",
    "regressions": "what followed each feature, under the values planned so far",
}
_LSVI_UCB = Algorithm(
    LSVIUCB,
    "online",
    name="LSVI-UCB",
    build=_lsvi_ucb,
    cites=(papers["jin-yang-wang-jordan"],),
    releases={"moments": "what followed each feature", "starts": "where people started"},
)
_LSVI_UCB_WEIGHTED = Algorithm(
    WeightedLSVIUCB,
    "online",
    name="LSVI-UCB with weights",
    build=_lsvi_ucb_weighted,
    cites=(papers["sahu"], papers["jin-yang-wang-jordan"]),
    releases={"moments": "what followed each feature", "visits": "how often each state was visited"},
)
_LSVI_UCB_PLUS_PLUS = Algorithm(
    LSVIUCBPlusPlus,
    "online",
    name="LSVI-UCB++",
    build=_lsvi_ucb_plus_plus,
    cites=(papers["sahu"], papers["he-zhao-zhou-gu"]),
    releases=_ROUNDS,
)


def _reconstructed(learner: type[LuyoLSVIUCB] | type[NgoLSVIUCB], name: str, paper: str) -> Algorithm:
    """One of the older algorithms, from what sahu says about them."""
    cites = (papers["sahu"], papers["jin-yang-wang-jordan"], papers[paper])

    def build(problem: Problem) -> LuyoLSVIUCB | NgoLSVIUCB:
        return learner(problem.features, problem.horizon, rewards=problem.rewards)

    return Algorithm(learner, "online", name=name, build=build, cites=cites, releases=_ROUNDS)


_LUYO = _reconstructed(LuyoLSVIUCB, "Luyo et al.", "luyo-garcelon-lazaric-pirotta")
_NGO = _reconstructed(NgoLSVIUCB, "Ngo et al.", "ngo-vietri-wu")
_UCBVI = Algorithm(
    UCBVI,
    "online",
    build=_ucbvi,
    cites=(papers["azar-osband-munos"],),
    releases={"transitions": "which state came next"},
)
_PUCB = _optimist(PUCB, "PUCB", "vietri-balle-krishnamurthy-wu")
_HOEFFDING = _optimist(HoeffdingUCBVI, "UCBVI with Hoeffding widths", "chowdhury-zhou")
_BERNSTEIN = _optimist(BernsteinUCBVI, "UCBVI with Bernstein widths", "qiao-wang-online")
_UCB_PO = _optimist(UCBPO, "UCB-PO", "chowdhury-zhou")
_OBI = _optimist(OBI, "OBI", "garcelon-perchet-pike-burke-pirotta")
_UCRL_VTR = Algorithm(
    UCRLVTR,
    "online",
    name="UCRL-VTR",
    build=_ucrl_vtr,
    cites=(papers["liao-he-gu"],),
    releases={"moments": "what followed each feature"},
)

ONLINE = (
    Recipe("lsvi-ucb", _LSVI_UCB, "none", "optimistic least squares on transition moments"),
    Recipe("dp-lsvi-ucb", _LSVI_UCB, "central", "LSVI-UCB on continually released moments, joint privacy"),
    Recipe("lsvi-ucb++", _LSVI_UCB_PLUS_PLUS, "none", "LSVI-UCB++, a plan after every episode"),
    Recipe(
        "dp-lsvi-ucb++",
        _LSVI_UCB_WEIGHTED,
        "central",
        "LSVI-UCB on continually released moments with the variance weights of LSVI-UCB++",
    ),
    Recipe(
        "dp-lsvi-ucb++@paper",
        _LSVI_UCB_PLUS_PLUS,
        "central",
        "LSVI-UCB++ with the paper's noise made fresh: everything released after every user",
        lambda problem: LSVIUCBPlusPlus.paper(problem.features, problem.horizon, rewards=problem.rewards),
        title="DP-LSVI-UCB++ as published",
        published=lsvi_noise,
        source="sahu",
    ),
    Recipe(
        "dp-lsvi-ucb-luyo@paper",
        _LUYO,
        "central",
        "private LSVI-UCB in static batches (Luyo et al. 2021), reconstructed; batches as for epsilon 1",
        title="Luyo et al.",
        published=lsvi_noise,
        source="luyo et al., reconstructed",
        continual="tree",
    ),
    Recipe(
        "dp-lsvi-ucb-ngo@paper",
        _NGO,
        "central",
        "private LSVI-UCB in adaptive batches (Ngo et al. 2022), reconstructed",
        title="Ngo et al.",
        published=lsvi_noise,
        source="ngo et al., reconstructed",
        continual="tree",
    ),
    Recipe("ucbvi", _UCBVI, "none", "optimistic value iteration on counts"),
    Recipe("dp-ucbvi", _UCBVI, "central", "UCBVI on continually released counts, joint privacy"),
    Recipe("ldp-ucbvi", _UCBVI, "local", "UCBVI on randomised responses, without a trusted server", pure=True),
    Recipe(
        "shuffle-ucbvi",
        _UCBVI,
        "shuffle",
        "UCBVI on answers that a trusted shuffler mixes, at least 500 people at a time",
        _ucbvi_in_batches,
    ),
    Recipe("ucrl-vtr", _UCRL_VTR, "none", "optimistic value-targeted regression in mixtures of kernels"),
    Recipe(
        "ldp-ucrl-vtr",
        _UCRL_VTR,
        "local",
        "UCRL-VTR with tight local noise; does not learn",
        title="LDP-UCRL-VTR, tight noise",
    ),
    Recipe(
        "ldp-ucrl-vtr@paper",
        _UCRL_VTR,
        "local",
        "UCRL-VTR with the printed local noise; does not learn",
        lambda problem: _ucrl_vtr(problem, calibration="paper"),
        title="LDP-UCRL-VTR as published",
        published=ucrl_vtr_noise,
        claims_epsilon=True,
        source="liao-he-gu",
    ),
    Recipe(
        "auto-online",
        _OBI,
        "central",
        "dp-obi or dp-lsvi-ucb: sizes, features and known rewards decide",
        _auto_online,
    ),
    Recipe("pucb", _PUCB, "none", "optimistic planning on visit and transition counts"),
    Recipe("dp-pucb", _PUCB, "central", "PUCB on continually released counts, joint privacy"),
    Recipe("hoeffding-ucbvi", _HOEFFDING, "none", "UCBVI with Hoeffding widths"),
    Recipe("dp-hoeffding-ucbvi", _HOEFFDING, "central", "UCBVI with Hoeffding widths, joint privacy"),
    Recipe(
        "ldp-hoeffding-ucbvi",
        _HOEFFDING,
        "local",
        "UCBVI with Hoeffding widths on randomised responses",
        pure=True,
    ),
    Recipe("bernstein-ucbvi", _BERNSTEIN, "none", "UCBVI with Bernstein widths on visits and transitions"),
    Recipe("dp-bernstein-ucbvi", _BERNSTEIN, "central", "UCBVI with Bernstein widths on consistent counts"),
    Recipe("ucb-po", _UCB_PO, "none", "optimistic policy optimisation on counts"),
    Recipe("dp-ucb-po", _UCB_PO, "central", "UCB-PO on continually released counts, joint privacy"),
    Recipe("ldp-ucb-po", _UCB_PO, "local", "UCB-PO on randomised responses", pure=True),
    Recipe("obi", _OBI, "none", "optimistic backward induction on counts of first visits"),
    Recipe("dp-obi", _OBI, "central", "OBI on continually released counts of first visits, joint privacy"),
    Recipe(
        "ldp-obi",
        _OBI,
        "local",
        "OBI on vectors of counts that people perturb themselves",
        pure=True,
        vectors=True,
        cites=(papers["duchi-jordan-wainwright"],),
    ),
)
