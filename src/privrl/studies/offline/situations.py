"""How often each situation was seen and what was done there, as far as the releases of a study say it.

Nothing is asked for here: releases that pass by are looked at, and what is made of them is post-processing. Every
release about visits is brought to shares of all visits (sums of one name are of different steps and add up first);
several of them are averaged with the inverse of their noise variance as weights.
"""

from dataclasses import asdict, dataclass
from typing import Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from privrl.contracts.release import Release
from privrl.contracts.statistic import AbstractStatistic
from privrl.contracts.untrusted import convert

_DIGITS = 6
_LARGEST = 100_000  # entries that are kept


@runtime_checkable
class TellsVisits(Protocol):
    """A statistic whose released sum says how often each action was taken in each state, up to one common factor."""

    def visits_of(self, entries: Float[Array, "..."]) -> Float[Array, "S A"]:
        """The entries about visits, selected or added up; of independent noise it takes variances to variances."""
        ...


class ReleasedVisits:
    """What the releases of a study say about visits, summed up by their names."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[Float[np.ndarray, "S A"], float]] = {}

    def watch(self, name: str, statistic: AbstractStatistic, release: Release) -> None:
        """Looks at a release that was made."""
        told: object = statistic
        if isinstance(told, TellsVisits):
            total = np.asarray(told.visits_of(release.value), float)
            spread = jnp.broadcast_to(release.noise.variance, release.value.shape)
            variance = float(np.max(np.asarray(told.visits_of(spread))))
            before, noise = self._sums.get(name, (np.zeros_like(total), 0.0))
            self._sums[name] = (before + total, noise + variance)

    def shares(self) -> tuple[Float[np.ndarray, "S A"], float] | None:
        """Shares of all visits by (s, a), and the standard deviation of the noise in one; nothing if none was told."""
        found = [
            (total / total.sum(), noise / total.sum() ** 2)
            for total, noise in self._sums.values()
            if np.isfinite(total).all() and total.sum() >= 1.0
        ]
        if not found:
            return None
        exact = [share for share, noise in found if noise == 0.0]
        if exact:
            return exact[0], 0.0
        weights = np.array([1.0 / noise for _, noise in found])
        return np.average([share for share, _ in found], axis=0, weights=weights), float(weights.sum() ** -0.5)


@dataclass(frozen=True)
class Situations:
    """What is known about every state.

    Attributes:
        visits: shares of all visits by state and action, from releases, below 0 if noise makes them so; `None` if no
            release contains them.
        noise: the standard deviation of the noise in one entry of `visits`.
        practice: the action that practice takes most often, from its public probabilities; `None` without these.
    """

    visits: list[list[float]] | None
    noise: float
    practice: list[int] | None

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: object) -> "Situations":
        """Reads what `to_json` wrote.

        Raises:
            ValueError: a type is wrong, or the lists do not describe the same states.
        """
        found = convert(content, cls, "`situations`")
        visits, practice = found.visits, found.practice
        widths = {len(row) for row in visits or ()}
        if (visits is None and practice is None) or len(widths) > 1 or 0 in widths or visits == []:
            raise ValueError("`situations` is malformed: `visits` must be a table, or `practice` a list.")
        if practice is not None and (min(practice, default=0) < 0 or len(practice) != found.num_states):
            raise ValueError("`situations` is malformed: `practice` must hold one action for each state.")
        return found

    @property
    def num_states(self) -> int:
        return len(self.practice if self.visits is None else self.visits)  # type: ignore[arg-type]

    @property
    def today(self) -> list[int]:
        """What practice does most often in every state: as is public, or as releases say."""
        return self.practice if self.practice is not None else np.asarray(self.visits).argmax(axis=-1).tolist()

    @property
    def seen(self) -> Float[np.ndarray, " S"] | None:
        """The share of all visits that were in each state, at least 0, adding up to 1."""
        if self.visits is None:
            return None
        total = np.maximum(np.asarray(self.visits).sum(axis=-1), 0.0)
        return total / max(total.sum(), 1e-300)


def situations_of(visits: ReleasedVisits, practice: Float[np.ndarray, "S A"] | None) -> Situations | None:
    """What releases, and public probabilities of practice, say about every state; nothing if they say nothing."""
    told = visits.shares()
    if told is not None and told[0].size > _LARGEST:
        told = None
    if told is None and practice is None:
        return None
    shares, noise = (None, 0.0) if told is None else (np.round(told[0], _DIGITS).tolist(), told[1])
    return Situations(shares, noise, None if practice is None else practice.argmax(axis=-1).tolist())
