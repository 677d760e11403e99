"""Empirical epsilon: run a recipe's mechanism in two neighbouring worlds, and count how well they can be told apart.

The worlds differ in one person, whose two records are the worst pair that a search over records finds for everything
that the recipe releases. A threshold on the likelihood ratio is chosen on one half of the runs, and right and wrong
guesses are counted on the other.
"""

import math
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from privrl.audit.attacks import AbstractAttack
from privrl.audit.bounds import epsilon_lower, gdp_epsilon_lower
from privrl.audit.channel_attack import ChannelAttack, channel_weight
from privrl.audit.curator_attack import CuratorAttack, curator_weight, in_scope
from privrl.audit.local_attacks import ReportAttack, ShuffleAttack, most_telling, telling_pair
from privrl.audit.recorded_fit import FitTranscript, Given, record_fit
from privrl.audit.recorded_run import RunTranscript, record_run
from privrl.audit.records import joined, picked, pool
from privrl.audit.report import AuditReport, Bound
from privrl.audit.sensitivity import Norm, climbed, farthest, search
from privrl.audit.statistics import Asked
from privrl.audit.worlds import data_of, world_of
from privrl.contracts.learner import AbstractOfflineLearner, AbstractOnlineLearner
from privrl.envs.base import Env
from privrl.envs.lq import LQEnv
from privrl.learners.functional.functional_reward import FunctionalReward
from privrl.privacy.accounting.composition import epsilon_of, mu_of
from privrl.privacy.accounting.events import Event
from privrl.privacy.trust.local_channels import AbstractLocalChannel, SymbolChannel
from privrl.recipes.recipe import Recipe
from privrl.recipes.registry import get

_PEOPLE = 5_000  # in the table of the recorded fit: enough for the questions that come only with trust
_THRESHOLDS = 400
_FIXED = "the questions are those of one recorded {}; the noise was drawn anew in every run, by the shipped code"
_COIN = "the coin of Poisson sampling was drawn by the audit, with the declared probability"


def lower_bound(
    recipe: str | Recipe,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    trials: int = 100_000,
    key: PRNGKeyArray,
    env: Env | LQEnv | None = None,
    confidence: float = 0.95,
    rounds: int = 12,
) -> AuditReport:
    """Attacks a recipe and says how much epsilon it must have, at least.

    Arguments:
        recipe: a registered recipe, or its name.
        epsilon, delta, rho: the budget, as for the recipe; epsilon = 1 and delta = 1e-5 if all are left out. A recipe
            without privacy takes none and is attacked all the same.
        trials: runs of each of the two worlds. Noise is cheap and bounds tighten with it: 100,000, a few seconds, show
            more than half of a true epsilon of 1; 2,000 show gross faults only.
        key: of the whole audit, which can be replayed.
        env: the world; a tiny one that suits the recipe unless given.
        confidence: with which the bound holds.
        rounds: how long the search for the worst pair climbs.

    **Formal guarantee.** The bound holds whatever the recipe does: the threshold is fixed before the runs that are
    counted, and these are independent. A recipe whose guarantee is true is called broken with probability at most
    1 - `confidence`.
    """
    started = time.perf_counter()
    recipe = get(recipe) if isinstance(recipe, str) else recipe
    if trials < 2:
        raise ValueError(f"`trials` is {trials}; one half chooses a threshold and one is counted, so give at least 2.")
    if (epsilon, delta, rho) == (None, None, None):
        epsilon, delta = 1.0, 1e-5
    private = recipe.trust != "none"
    privatizer = recipe.privatizer(epsilon=epsilon, delta=delta, rho=rho) if private else recipe.privatizer()
    world, learner = world_of(recipe, env)
    search_key, record_key, run_key = jax.random.split(key, 3)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(search_key)))
    records = pool(world, rng)
    notes: tuple[str, ...]
    if isinstance(learner, AbstractOnlineLearner):
        run = record_run(world, learner, privatizer, record_key)
        attack, asked, events = _online(run, records, rng, rounds)
        notes = (_FIXED.format("run"),)
    else:
        assert isinstance(world, Env) and isinstance(learner, AbstractOfflineLearner | FunctionalReward)
        fit = record_fit(data_of(world, learner, _PEOPLE, record_key), learner, privatizer, record_key)
        attack, asked, events = _offline(fit, records, rng, rounds)
        notes = (_FIXED.format("fit"), *((_COIN,) if any(e.sampling < 1 for e in events) else ()))
        if isinstance(learner, FunctionalReward):
            notes = (*notes, f"the worlds are {learner.neighbours}; no person is in them")
    norms: tuple[Norm, ...] = ("l1", "l2") if any(e.mechanism == "laplace" for e in events) else ("l2",)
    sensitivities = search(asked, records, rng, rounds=rounds, norms=norms) if asked else ()
    delta = privatizer.reported_delta
    exact = epsilon_of(events, delta, adjacency=privatizer.adjacency)
    promised = {"epsilon": getattr(privatizer, "epsilon", None)} | dict(privatizer.claimed or {})
    claimed = exact if promised["epsilon"] is None else float(promised["epsilon"])
    mu_exact = mu_of(events)
    scores = attack.scores(run_key, trials)
    bound: Bound = "Gaussian DP" if mu_exact is not None and math.isfinite(mu_exact) else "Clopper-Pearson"
    return AuditReport(
        recipe=recipe.name,
        epsilon_claimed=claimed,
        epsilon_exact=exact,
        epsilon_lower=bound_of(scores, delta, confidence, gaussian=bound == "Gaussian DP"),
        delta=delta,
        trials=trials,
        confidence=confidence,
        bound=bound,
        mu=attack.mu,
        mu_exact=mu_exact,
        loss_mean=float(scores[1].mean() - scores[0].mean()) / 2,
        loss_variance=float(scores.var(axis=1).mean()),
        sensitivities=sensitivities,
        notes=notes,
        seconds=time.perf_counter() - started,
    )


def bound_of(scores: Float[np.ndarray, "2 n"], delta: float, confidence: float, *, gaussian: bool) -> float:
    """The bound of the best threshold of one half of the runs, counted on the other half.

    `scores[w]` are those of world w, larger where world 1 is likelier.
    """
    bound = gdp_epsilon_lower if gaussian else epsilon_lower
    half = scores.shape[1] // 2

    def value(part: Float[np.ndarray, "2 n"], threshold: float) -> float:
        wrong, right = (part > threshold).sum(axis=1)
        return bound(int(wrong), int(right), part.shape[1], delta, confidence)

    chosen, counted = scores[:, :half], scores[:, half:]
    seen = np.unique(np.quantile(chosen, np.linspace(0.0, 1.0, min(_THRESHOLDS, half)), axis=1))
    candidates = np.concatenate([seen, (seen[1:] + seen[:-1]) / 2])
    return value(counted, max(candidates.tolist(), key=lambda threshold: value(chosen, threshold)))


def _offline(
    fit: FitTranscript, records: Any, rng: np.random.Generator, rounds: int
) -> tuple[AbstractAttack, tuple[Asked, ...], tuple[Event, ...]]:
    """The attack on the worst pair of records, in the group of people in which it is worst."""
    declared = fit.learner.declare()
    groups: list[str | None] = list(dict.fromkeys(d.group for d in declared if d.group is not None))
    best: tuple[float, Any, str | None] = (-1.0, None, None)
    for group in groups or [None]:
        scope = [step for step in fit.asked if in_scope(fit, step, group)]
        if scope:
            apart, pair = _worst_pair(scope, [curator_weight(step) for step in scope], records, rng, rounds)
            best = max(best, (apart, pair, group), key=lambda found: found[0])
    _, pair, group = best
    answers = tuple(
        step.answers(pair) if isinstance(step, Asked) else step.neighbours() if isinstance(step, Given) else None
        for step in fit.steps
    )
    return CuratorAttack(fit, answers, group), fit.asked, fit.events


def _online(
    run: RunTranscript, records: Any, rng: np.random.Generator, rounds: int
) -> tuple[AbstractAttack, tuple[Asked, ...], tuple[Event, ...]]:
    """The attack on the worst pair of records, in the block in which it is worst."""
    events = run.ledger.events()
    channel = next(iter(run.channels.values()))
    if isinstance(channel, SymbolChannel):
        (event,) = events
        if event.batch is not None:
            return ShuffleAttack(channel, most_telling(channel, run.plans[0], records, event.batch)), (), events
        i, j, index = telling_pair(channel, run.plans[0], records)
        return ReportAttack(run, picked(records, np.array([i, j])), index), (), events
    local = isinstance(channel, AbstractLocalChannel)
    best: tuple[float, Any, int] = (-1.0, None, 0)
    for block in range(1 if local else len(run.ends)):
        asked = run.asked(block)
        weights = [channel_weight(run, step, block) for step in asked]
        apart, pair = _worst_pair(asked, weights, records, rng, rounds)
        best = max(best, (apart, pair, block), key=lambda found: found[0])
    _, pair, block = best
    attack = ReportAttack(run, pair, 0) if local else ChannelAttack(run, block, pair)
    return attack, run.asked(block), events


def _worst_pair(
    asked: Sequence[Asked], weights: Sequence[float], records: Any, rng: np.random.Generator, rounds: int
) -> tuple[float, Any]:
    """The two records that everything asked tells apart best, and their distance in units of the noise."""
    weights = [w if math.isfinite(w) else 1.0 for w in weights]

    def answers(some: Any) -> Float[np.ndarray, "N D"]:
        return np.concatenate([w * step.answers(some) for w, step in zip(weights, asked, strict=True)], axis=1)

    i, j, _ = farthest(answers(records))
    pair = joined(*(picked(records, np.array([k])) for k in (i, j)))
    pair = climbed(answers, pair, rng, rounds)
    return float(np.linalg.norm(np.diff(answers(pair), axis=0))), pair
