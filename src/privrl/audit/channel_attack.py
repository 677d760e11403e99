"""The attack on what an online learner publishes: streams, blocks, and answers to questions about those who left."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from privrl.audit.attacks import AbstractAttack, likelihood_ratio
from privrl.audit.recorded_run import RunTranscript
from privrl.audit.records import wide
from privrl.audit.statistics import Asked
from privrl.contracts.release import Release
from privrl.privacy.noise.sources import standard_normal
from privrl.privacy.trust.channels import BlockChannel, RoundsChannel, RunningChannel
from privrl.studies.run import SimulationKeys


@dataclass(frozen=True)
class ChannelAttack(AbstractAttack):
    """The releases of a run to whoever reads them all: streams, blocks and questions, by the shipped channels.

    The person is in block `block`, and `records` (stacked) are the two that they may have.
    """

    transcript: RunTranscript
    block: int
    records: Any

    @property
    def mu(self) -> float | None:
        if any(event.mechanism != "gaussian" for event in self.transcript.ledger.events()):
            return None
        total = 0.0
        for step in self.transcript.asked(self.block):
            zero, one = step.answers(self.records)
            total += float(((one - zero) ** 2).sum()) * channel_weight(self.transcript, step, self.block) ** 2
        return math.sqrt(total)

    def run(self, world: int) -> Callable[[Any], Array]:
        transcript, block = self.transcript, self.block
        fixed = (transcript.channels, transcript.asked(block), wide(self.records), block, len(transcript.ends))
        return lambda keys: _channel_scores(*fixed, jnp.asarray(world), keys)


@eqx.filter_jit
def _channel_scores(
    channels: dict[str, Any],
    asked: tuple[Asked, ...],
    records: Any,
    block: int,
    blocks: int,
    world: Int[Array, ""],
    keys: Any,
) -> Float[Array, " n"]:
    own_record = jax.tree.map(lambda leaf: leaf[world], records)

    def answers(step: Asked) -> Array:
        def answer(record: Any) -> Array:
            return step.statistic.answer(step.statistic.contribution(record, step.published), step.question)

        return jax.vmap(answer)(records)

    def one(key: PRNGKeyArray) -> Array:
        keys, score = SimulationKeys.of(key), jnp.zeros(())
        for step in asked:
            channel, shape = channels[step.name], step.statistic.shape
            number = list(channels).index(step.name)

            def white(t: int, i: int, number: int = number, shape: tuple[int, ...] = shape) -> Array:
                return standard_normal(keys.white(number, t, i), shape)

            term = channel.term(own_record, step.published, jnp.zeros((), int), key)
            if isinstance(channel, RoundsChannel):
                fixed = white(step.block, step.index)
                release = channel.ask(term, step.question, functools.partial(_same, fixed))
                score = score + likelihood_ratio(release, *answers(step))
                continue
            memory, releases = channel.init(), []
            for t in range(blocks):
                total = term if t == block else jnp.zeros(shape)
                memory, release = channel.publish(memory, total, jnp.asarray(t), functools.partial(white, t))
                releases.append(release)
            if isinstance(channel, BlockChannel):
                score = score + likelihood_ratio(releases[block], *answers(step))
            else:
                score = score + _stream_ratio(channel, releases, block, *answers(step))
        return score

    return jax.vmap(one)(keys)


def _same(white: Array, i: int) -> Array:
    """The one draw of a release that has one."""
    del i
    return white


def channel_weight(transcript: RunTranscript, step: Asked, block: int) -> float:
    """What one unit of a person's answer amounts to, in units of the noise of all releases of a channel."""
    channel = transcript.channels[step.name]
    scale = float(channel.scale)  # type: ignore[attr-defined]
    gain = _decoded(channel, block)[1] if isinstance(channel, RunningChannel) else 1.0
    return gain / scale if scale > 0 else math.inf


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
    y = jnp.tensordot(weights, jnp.stack([release.value for release in releases]), axes=1)
    distance = jnp.maximum(((one - zero) ** 2).sum(), 1e-300)
    variance = jnp.where(channel.scale > 0, channel.scale**2, distance * gain**2)
    return jnp.vdot(y - gain**2 * (one + zero) / 2, one - zero) / variance
