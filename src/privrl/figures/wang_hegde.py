"""wang-hegde, Figure 1: learning curves of Q-learning with functional noise, for several noise levels and J.

Algorithm 1 is not private as printed, so there is no recipe for it: the corrected algorithm is one of the
known-bad cases of the audit, and this figure is about *learning* only. The text gives the world and 10 repetitions. We
make 40, because runs differ much and are quick.
"""

import time

import jax
import numpy as np

from privrl.envs.tabular.interval_walk import IntervalWalk
from privrl.figures.cell import Cell, Measured
from privrl.figures.claims import Claim, all_of, untestable
from privrl.figures.figure import Figure
from privrl.figures.figure_rules import close, ends_below, slower
from privrl.figures.panels import Panel, Series
from privrl.figures.verdict import Earlier

_SIGMAS = (0.0, 0.1, 0.2, 0.4, 0.8)
_EVALUATIONS = 20


def functional_q(cell: Cell, seed: int) -> Measured:
    """Train Algorithm 1 at the noise level `sigma`, with a new path after `every` batches (0: one for all)."""
    from privrl.audit.known_bad.functional_q import Settings, train

    started = time.perf_counter()
    world, env = dict(cell.world), IntervalWalk()
    settings = Settings(samples=cell.people)
    every = int(world["every"]) or settings.batches
    curves = train(
        jax.random.key(seed),
        [float(world["sigma"])],
        cell.seeds,
        [settings.batches // every],
        settings=settings,
        evaluations=min(_EVALUATIONS, settings.batches),
    )
    best, uniform = float(env.optimal_value), float(env.value(env.uniform_policy()))
    at = np.asarray(curves.samples)
    return Measured(
        measure="suboptimality",
        at=at,
        values=best - np.asarray(curves.released)[0, 0],
        yardstick=np.full(at.size, best - uniform),
        levels={"uniform": best - uniform, "optimal": best},
        certified=None,
        seconds=time.perf_counter() - started,
    )


def _cell(sigma: float, every: int) -> Cell:
    j = "T/B" if every else "1"
    return Cell(
        "functional-q",
        "interval-walk",
        people=100_000,
        seeds=40,
        world=(("sigma", sigma), ("every", every)),
        how=functional_q,
        few=1_000,
        name=f"sigma {sigma:g}, J = {j}",
    )


_FRESH = {sigma: _cell(sigma, every=1) for sigma in _SIGMAS}
_ONE_PATH = {sigma: _cell(sigma, every=0) for sigma in _SIGMAS[1:]}
_PLAIN = _FRESH[0.0]

FIG1 = Figure(
    name="wang-hegde-fig1",
    paper="wang-hegde",
    title="learning curves of Q-learning with functional noise",
    summary="Return of Q-learning with functional noise on the interval walk: about learning, not about privacy.",
    cells=(*_FRESH.values(), *_ONE_PATH.values()),
    smoke=(_PLAIN, _FRESH[0.2], _ONE_PATH[0.2]),
    panels=tuple(
        Panel(
            title,
            tuple(Series((c,), 6 if s == 0 else i, "no noise" if s == 0 else f"sigma {s:g}") for i, (s, c) in lines),
            y="value",
            xlabel="samples",
            ylabel="return of 50 steps",
            levels=("uniform", "optimal"),
            log="",
        )
        for title, lines in (
            ("a new path in every batch (J = T/B)", list(enumerate(_FRESH.items()))),
            ("one path for the whole run (J = 1)", [(0, (0.0, _PLAIN)), *enumerate(_ONE_PATH.items(), 1)]),
        )
    ),
    claims=(
        Claim(
            "With more noise the algorithm takes more samples to reach the performance of the version without noise.",
            slower(tuple(_FRESH.values()), _PLAIN, 0.05),
        ),
        Claim(
            "With the noise reset in every round (J = T/B) it converges with limited suboptimality for sigma < .4 "
            "(at most a quarter of what random actions lose).",
            all_of(*(ends_below(_FRESH[sigma], 0.25) for sigma in (0.1, 0.2))),
        ),
        Claim(
            "J = T/B achieves an epsilon and almost delta differential privacy guarantee.",
            untestable(
                "A learning curve does not show privacy. The attacks of `privrl audit --known-bad` prove a larger "
                "epsilon than is claimed for this algorithm, even as corrected here."
            ),
            "cannot be tested",
        ),
        Claim(
            "(ours) With one path for the whole run (J = 1) the network learns to cancel the noise: it ends as well as "
            "without noise.",
            all_of(*(close(cell, _PLAIN, 0.05) for cell in _ONE_PATH.values())),
            "reproduced",
        ),
    ),
    earlier=Earlier("our first measurements, functional noise"),
    notes=(
        "The paper's text gives neither batch, learning rate, discount, beta, T nor the network; ours are in "
        "`privrl.audit.known_bad`.",
        "Lines 9, 14 to 16, 18, 19 and 21 of Algorithm 1 are corrected. As printed, they give a negative variance "
        "and gradient ascent.",
        "The return is that of acting greedily on what would be released, Q + g, computed exactly, not sampled.",
    ),
)
