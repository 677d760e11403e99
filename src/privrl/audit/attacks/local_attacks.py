"""Attacks without a trusted curator: on the messages of one person, and on the output of a shuffler."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from privrl.audit.attacks.attack import AbstractAttack, likelihood_ratio, noise_weight
from privrl.audit.surface.neighbouring_records import AnyRecords, widen_records
from privrl.audit.surface.recorded_run import RunTranscript
from privrl.contracts.release import Release
from privrl.privacy.noise.sources import uniform
from privrl.privacy.trust.channels import noise_of
from privrl.privacy.trust.direction_channels import DirectionChannel
from privrl.privacy.trust.symbol_channels import SymbolChannel
from privrl.privacy.trust.vector_channels import VectorChannel

# The person's number is public and determines their query. This is how many numbers are tried.
_QUERIES = 64


def log_probability(channel: SymbolChannel, held: Bool[Array, "*n k"], symbol: Int[Array, "*n"]) -> Float[Array, "*n"]:
    """Return the log-probability of answering with the set `held` when the truth is `symbol`, up to a constant.

    With sets of d among k symbols: p / C(k-1, d-1) if the set holds the truth, (1 - p) / C(k-1, d) otherwise. The
    second is (1 - p) d / (p (k - d)) of the first.
    """
    response = channel.response
    k, d, p = channel.statistic.num_symbols, response.size, response.keep_probability
    lie = jnp.log(jnp.maximum(response.lie_probability, 1e-300)) - jnp.log(p) + jnp.log(d) - jnp.log(k - d)
    inside = jnp.take_along_axis(held, symbol[..., None], axis=-1)[..., 0]
    return jnp.where(inside, 0.0, lie)


@dataclass(frozen=True)
class ReportAttack(AbstractAttack):
    """An attack on one person's messages to an untrusted server, made by the shipped channels.

    Attributes:
        records: the two possible records, stacked.
        index: the person's number.
        times: how often the person takes part, with the same record each time.
    """

    transcript: RunTranscript
    records: AnyRecords
    index: int
    times: int = 1

    def distances(self) -> list[float] | None:
        run = self.transcript
        if any(event.mechanism != "gaussian" for event in run.ledger.events()):
            return None
        scales = [float(run.channels[step.name].scale) for step in run.queries_about(0)]  # type: ignore[attr-defined]
        apart = [np.linalg.norm(np.diff(step.answers(self.records), axis=0)) for step in run.queries_about(0)]
        return [
            math.sqrt(self.times) * float(distance) * noise_weight(scale)
            for distance, scale in zip(apart, scales, strict=True)
        ]

    def run(self, world: int) -> Callable[[Key[Array, " n"]], Array]:
        fixed = (
            self.transcript.channels,
            self.transcript.plans[0],
            widen_records(self.records),
            jnp.asarray(self.index),
        )
        return lambda keys: _report_scores(*fixed, self.times, jnp.asarray(world), keys)


@eqx.filter_jit
def _report_scores(
    channels: dict[str, Any],
    plan: object,
    records: AnyRecords,
    index: Int[Array, ""],
    times: int,
    world: Int[Array, ""],
    keys: Key[Array, " n"],
) -> Float[Array, " n"]:
    record = jax.tree.map(lambda leaf: leaf[world], records)

    def visit(key: PRNGKeyArray) -> Array:
        score = jnp.zeros(())
        for number, channel in enumerate(channels.values()):
            report = channel.report(record, plan, index, jax.random.fold_in(key, number))
            if isinstance(channel, SymbolChannel):
                zero, truth = jax.vmap(lambda x, c=channel: c.symbol(x, plan, index))(records)
                score = score + log_probability(channel, report, truth) - log_probability(channel, report, zero)
            else:
                answers = jax.vmap(lambda x, c=channel: c.statistic.contribution(x, plan))(records)
                score = score + _vector_ratio(channel, report, *answers)
        return score

    def one(key: PRNGKeyArray) -> Array:
        return visit(key) if times == 1 else jax.vmap(visit)(jax.random.split(key, times)).sum()

    return jax.vmap(one)(keys)


def _vector_ratio(channel: VectorChannel | DirectionChannel, report: Array, zero: Array, one: Array) -> Array:
    """Return the log-likelihood ratio of one report of a vector.

    A direction z has density proportional to lie + (truth - lie) P(its side is that of the term), and the side of a
    term x of norm at most C is that of x with probability (1 + |x|/C)/2.
    """
    if isinstance(channel, VectorChannel):
        return likelihood_ratio(
            Release(report, noise_of(channel.statistic, channel.mechanism, channel.scale)), zero, one
        )
    norm, lie = channel.norm, jax.nn.sigmoid(-channel.epsilon)

    def log_density(x: Array) -> Array:
        share = (1.0 + jnp.linalg.norm(x.ravel()) / norm * jnp.where(jnp.vdot(report, x) >= 0, 1.0, -1.0)) / 2.0
        return jnp.log(lie + (1.0 - 2.0 * lie) * share)

    return log_density(one) - log_density(zero)


@dataclass(frozen=True)
class ShuffleAttack(AbstractAttack):
    """An attack on the output of a shuffler for one batch: the answer to every query, without its sender.

    `symbols` are the true answers to each query of the batch under the record of world 0, of world 1, and of all
    other people. Which query the person got is uniform, so the likelihood of all answers is an average over queries
    i of R_i(y_i | own record)/R_i(y_i | others' record), times a factor that both worlds share.
    """

    channel: SymbolChannel
    symbols: Int[np.ndarray, "3 n"]

    def distances(self) -> None:
        return None

    def run(self, world: int) -> Callable[[Key[Array, " n"]], Array]:
        return lambda keys: _shuffled_scores(self.channel, jnp.asarray(self.symbols), jnp.asarray(world), keys)


@eqx.filter_jit
def _shuffled_scores(
    channel: SymbolChannel, symbols: Int[Array, "3 n"], world: Int[Array, ""], keys: Key[Array, " m"]
) -> Float[Array, " m"]:
    n, k = symbols.shape[1], channel.statistic.num_symbols

    def one(key: PRNGKeyArray) -> Array:
        own, rest = jax.random.split(key)
        mine = jax.random.randint(own, (), 0, n)
        truth = jnp.where(jnp.arange(n) == mine, symbols[world], symbols[2])
        held = jax.vmap(channel.response.respond)(truth, uniform(rest, (n, k + 1)))
        others = log_probability(channel, held, symbols[2])
        zero, first = (jax.nn.logsumexp(log_probability(channel, held, symbols[w]) - others) for w in (0, 1))
        return first - zero

    return jax.lax.map(one, keys, batch_size=64)


def find_farthest_batch(
    channel: SymbolChannel, plan: object, records: AnyRecords, batch: int
) -> Int[np.ndarray, "3 n"]:
    """Find the answers of two records that differ in as many queries of a batch as possible, and those of a third."""
    rows = np.unique(_symbols(channel, plan, widen_records(records), jnp.arange(batch)), axis=0)[:400]
    differ = (rows[:, None] != rows[None]).mean(axis=2)
    i, j = np.unravel_index(int(differ.argmax()), differ.shape)
    others = rows[int(np.argmax(np.minimum(differ[i], differ[j])))]
    return np.stack([rows[i], rows[j], others])


def find_farthest_report(channel: SymbolChannel, plan: object, records: AnyRecords) -> tuple[int, int, int]:
    """Find two records that answer differently, and the number of the person who is asked."""
    answers = np.asarray(_symbols(channel, plan, widen_records(records), jnp.arange(_QUERIES)))
    index = int(np.ptp(answers, axis=0).argmax())
    return int(answers[:, index].argmin()), int(answers[:, index].argmax()), index


@eqx.filter_jit
def _symbols(channel: SymbolChannel, plan: object, records: AnyRecords, index: Int[Array, " n"]) -> Int[Array, "N n"]:
    return jax.vmap(lambda x: jax.vmap(lambda i: channel.symbol(x, plan, i))(index))(records)
