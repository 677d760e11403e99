"""The attack on what an online learner publishes: streams, blocks, and answers to later queries.

The two worlds differ in one person, who takes part in some blocks of one world and in some of the other. The person
has one record per world, and contributes it each time.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray

from privrl.audit.attacks.attack import AbstractAttack, likelihood_ratio, noise_weight
from privrl.audit.surface.neighbouring_records import AnyRecords, pick_records, widen_records
from privrl.audit.surface.queries import Query
from privrl.audit.surface.recorded_run import RunTranscript
from privrl.contracts.release import Release
from privrl.privacy.noise.sources import white_noise
from privrl.privacy.trust.channels import AbstractChannel, RoundsChannel, RunningChannel, noise_of
from privrl.privacy.trust.direction_channels import DirectionChannel
from privrl.studies.simulation.simulated_loop import SimulationKeys

Pattern = tuple[int, ...]


@dataclass(frozen=True)
class ChannelAttack(AbstractAttack):
    """An attack on all releases of a run together: streams, blocks and queries, by the shipped channels.

    The person takes part in the blocks `patterns[w]` of world w, with record number w of `records` (stacked).
    """

    transcript: RunTranscript
    patterns: tuple[Pattern, Pattern]
    records: AnyRecords

    def distances(self) -> list[float] | None:
        run = self.transcript
        if any(event.mechanism != "gaussian" for event in run.ledger.events()):
            return None
        found = []
        for name, channel in run.channels.items():
            per_unit = noise_weight(float(channel.scale))  # type: ignore[attr-defined]
            zero, one = (self._totals(world, name) for world in (0, 1))
            if isinstance(channel, RoundsChannel):
                for t, _, query in self._later(name):
                    answers = (channel.statistic.answer(total[:t].sum(axis=0), query) for total in (one, zero))
                    found.append(per_unit * float(jnp.linalg.norm(next(answers) - next(answers))))
            else:
                means = _encoding(channel, len(run.ends)) @ (one - zero).reshape(len(one), -1)
                found.append(per_unit * float(np.linalg.norm(means)))
        return found

    def run(self, world: int) -> Callable[[Key[Array, " n"]], Array]:
        run = self.transcript
        totals = {name: (self._totals(0, name), self._totals(1, name)) for name in run.channels}
        asked = {name: self._later(name) for name in run.channels}
        return lambda keys: _scores(run.channels, totals, asked, world, keys)

    def _totals(self, world: int, name: str) -> Float[Array, "blocks ..."]:
        """Return what the person adds to the sum of every block."""
        run, channel = self.transcript, self.transcript.channels[name]
        record, unused_key = widen_records(pick_records(self.records, world)), jax.random.key(0)
        total = jnp.zeros((len(run.ends), *channel.statistic.raw_shape))
        for block in self.patterns[world]:
            total = total.at[block].add(channel.term(record, run.plans[block], jnp.zeros((), int), unused_key))
        return total

    def _later(self, name: str) -> tuple[tuple[int, int, object], ...]:
        """Return the blocks before which new queries about the person were made, with their indices and contents."""
        first = min(block for pattern in self.patterns for block in pattern)
        return tuple((t, i, query) for asked, t, i, query in self.transcript.queries if asked == name and t > first)


@eqx.filter_jit
def _scores(
    channels: dict[str, Any],
    totals: dict[str, tuple[Float[Array, "blocks ..."], Float[Array, "blocks ..."]]],
    asked: dict[str, tuple[tuple[int, int, object], ...]],
    world: int,
    keys: Key[Array, " n"],
) -> Float[Array, " n"]:
    def score(name: str, key: PRNGKeyArray) -> Array:
        channel, number, both = channels[name], list(channels).index(name), totals[name]
        own, shape = both[world], channel.statistic.shape

        def white(t: int, i: int) -> Array:
            return white_noise(channel.white, SimulationKeys.of(key).white(number, t, i), shape)

        if isinstance(channel, RoundsChannel):
            ratios = []
            for t, i, query in asked[name]:
                drawn = functools.partial(white, t, i)
                release = channel.ask(own[:t].sum(axis=0), query, lambda _: drawn())  # noqa: B023
                zero, one = (channel.statistic.answer(total[:t].sum(axis=0), query) for total in both)
                ratios.append(likelihood_ratio(release, zero, one))
            return jnp.stack(ratios).sum() if ratios else jnp.zeros(())
        memory, releases = channel.init(), []
        for t in range(len(own)):
            memory, release = channel.publish(memory, own[t], jnp.asarray(t), functools.partial(white, t))
            releases.append(release)
        if isinstance(channel, RunningChannel):
            return _stream_ratio(channel, releases, *both)
        blocks = zip(releases, *both, strict=True)
        return jnp.stack([likelihood_ratio(release, zero, one) for release, zero, one in blocks]).sum()

    def total(key: PRNGKeyArray) -> Array:
        return jnp.stack([score(name, key) for name in channels]).sum()

    return jax.vmap(total)(keys)


def pattern_weight(transcript: RunTranscript, step: Query, pattern: Pattern) -> float:
    """Return what a distance of 1 in a person's answer amounts to, in units of the noise of a channel."""
    channel = transcript.channels[step.name]
    if isinstance(channel, RoundsChannel):
        gain = float(sum(block < step.block for block in pattern))
    else:
        columns = _encoding(channel, len(transcript.ends))[:, list(pattern)]
        pure = isinstance(channel, RunningChannel) and channel.mechanism == "laplace"
        gain = float(np.linalg.norm(columns.sum(axis=1), 1 if pure else 2))
    scale = channel.radius if isinstance(channel, DirectionChannel) else channel.scale  # type: ignore[attr-defined]
    return gain * noise_weight(float(scale))


def _encoding(channel: AbstractChannel, blocks: int) -> Float[np.ndarray, "blocks blocks"]:
    """Return B^-1 A: the releases are A x + scale B z, which B^-1 whitens; the identity for sums of blocks."""
    if not isinstance(channel, RunningChannel):
        return np.eye(blocks)
    with jax.ensure_compile_time_eval():
        return np.linalg.solve(channel.continual.matrix(), channel.continual.sums())


def _stream_ratio(
    channel: RunningChannel, releases: list[Release], zero: Float[Array, "blocks ..."], one: Float[Array, "blocks ..."]
) -> Float[Array, ""]:
    """Return the log-likelihood ratio of a whole stream."""
    blocks = len(releases)
    with jax.ensure_compile_time_eval():
        inverse = np.linalg.inv(channel.continual.matrix())
    means = [jnp.asarray(_encoding(channel, blocks)) @ total.reshape(blocks, -1) for total in (zero, one)]
    y = jnp.asarray(inverse) @ jnp.stack([release.value.ravel() for release in releases])
    apart = means[1] - means[0]
    if channel.mechanism == "laplace":
        encoded = [Release(row, noise_of(channel.statistic, "laplace", channel.scale)) for row in y]
        return jnp.stack([likelihood_ratio(*each) for each in zip(encoded, *means, strict=True)]).sum()
    variance = jnp.where(channel.scale > 0, channel.scale**2, jnp.maximum((apart**2).sum(), 1e-300))
    return jnp.vdot(y - (means[0] + means[1]) / 2, apart) / variance
