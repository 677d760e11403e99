"""The attack on what an online learner publishes: streams, blocks, and answers to questions about those who left."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from privrl.audit.attacks import AbstractAttack, likelihood_ratio, weight
from privrl.audit.recorded_run import RunTranscript
from privrl.audit.records import picked, wide
from privrl.audit.statistics import Asked
from privrl.contracts.release import Release
from privrl.privacy.noise.sources import standard_normal
from privrl.privacy.trust.channels import BlockChannel, RoundsChannel, RunningChannel
from privrl.studies.simulation import SimulationKeys


@dataclass(frozen=True)
class ChannelAttack(AbstractAttack):
    """The releases of a run to whoever reads them all: streams, blocks and questions, by the shipped channels.

    The person is in block `block`, and `records` (stacked) are the two that they may have.
    """

    transcript: RunTranscript
    block: int
    records: Any

    def distances(self) -> list[float] | None:
        return distances_in_run(self.transcript, self.block, self.records)

    def run(self, world: int) -> Callable[[Any], Array]:
        asked = self.transcript.asked(self.block)
        pairs = tuple(jnp.asarray(step.answers(self.records)) for step in asked)
        fixed = (self.transcript.channels, asked, pairs, self.block, len(self.transcript.ends))
        return lambda keys: _channel_scores(*fixed, wide(picked(self.records, world)), keys)


@eqx.filter_jit
def _channel_scores(
    channels: dict[str, Any],
    asked: tuple[Asked, ...],
    pairs: tuple[Float[Array, "2 _"], ...],
    block: int,
    blocks: int,
    record: Any,
    keys: Any,
) -> Float[Array, " n"]:
    def score(step: Asked, pair: Float[Array, "2 _"], key: PRNGKeyArray) -> Array:
        channel, number = channels[step.name], list(channels).index(step.name)

        def white(t: int, i: int) -> Array:
            return standard_normal(SimulationKeys.of(key).white(number, t, i), step.shape)

        term = channel.term(record, step.published, jnp.zeros((), int), key)
        if isinstance(channel, RoundsChannel):
            release = channel.ask(term, step.question, lambda i: white(step.block, step.index))
            return likelihood_ratio(release, *pair)
        memory, releases = channel.init(), []
        for t in range(blocks):
            total = term if t == block else jnp.zeros(step.shape)
            memory, release = channel.publish(memory, total, jnp.asarray(t), functools.partial(white, t))
            releases.append(release)
        if isinstance(channel, BlockChannel):
            return likelihood_ratio(releases[block], *pair)
        return _stream_ratio(channel, releases, block, *pair)

    def one(key: PRNGKeyArray) -> Array:
        return jnp.stack([score(step, pair, key) for step, pair in zip(asked, pairs, strict=True)]).sum()

    return jax.vmap(one)(keys)


def distances_in_run(transcript: RunTranscript, block: int, records: Any) -> list[float] | None:
    """The distance of two people of one block in each release, in units of its noise, if all of it is Gaussian."""
    if any(event.mechanism != "gaussian" for event in transcript.ledger.events()):
        return None
    return [
        float(np.linalg.norm(np.diff(step.answers(records), axis=0))) * channel_weight(transcript, step, block)
        for step in transcript.asked(block)
    ]


def channel_weight(transcript: RunTranscript, step: Asked, block: int) -> float:
    """What one unit of a person's answer amounts to, in units of the noise of all releases of a channel."""
    channel = transcript.channels[step.name]
    gain = _decoded(channel, block)[1] if isinstance(channel, RunningChannel) else 1.0
    return gain * weight(float(channel.scale))  # type: ignore[attr-defined]


def _decoded(channel: RunningChannel, block: int) -> tuple[Float[np.ndarray, " B"], float]:
    """How an attacker weighs the releases of a stream, and what one leaf is worth in them.

    The releases are A x + scale B z. B^-1 whitens them, and leaf `block` then stands along g = B^-1 A e_block: the
    sufficient statistic is g^T B^-1 y, with signal |g|^2 and noise of scale |g|.
    """
    with jax.ensure_compile_time_eval():
        inverse = np.linalg.inv(channel.continual.matrix())
    g = inverse[:, block:].sum(axis=1)
    return inverse.T @ g, float(np.linalg.norm(g))


def _stream_ratio(
    channel: RunningChannel, releases: list[Release], block: int, zero: Array, one: Array
) -> Float[Array, ""]:
    """The log-likelihood ratio of a whole stream."""
    weights, gain = _decoded(channel, block)
    y = jnp.tensordot(weights, jnp.stack([release.value.ravel() for release in releases]), axes=1)
    distance = jnp.maximum(((one - zero) ** 2).sum(), 1e-300)
    variance = jnp.where(channel.scale > 0, channel.scale**2, distance * gain**2)
    return jnp.vdot(y - gain**2 * (one + zero) / 2, one - zero) / variance
