"""One question that was put to people, and what any record would answer."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from privrl.audit._records import wide
from privrl.privacy import AbstractStatistic, Release

CHUNK = 512


class Asked(eqx.Module):
    """One release about people: a statistic, what was published when they took part, and what was asked afterwards."""

    name: str = eqx.field(static=True)
    statistic: AbstractStatistic
    published: Any = None
    question: Any = None
    block: int = eqx.field(static=True, default=0)
    index: int = eqx.field(static=True, default=0)
    release: Release | None = None

    def answers(self, records: Any) -> Float[np.ndarray, "N D"]:
        """The answer that each of these stacked records alone would give."""
        count = len(jax.tree.leaves(records)[0])
        padded = jax.tree.map(lambda x: np.concatenate([x, np.repeat(x[:1], -count % CHUNK, axis=0)]), wide(records))
        chunks = (jax.tree.map(lambda x, i=i: x[i : i + CHUNK], padded) for i in range(0, count, CHUNK))
        parts = [np.asarray(_answers(self.statistic, self.published, self.question, chunk)) for chunk in chunks]
        return np.concatenate(parts)[:count]


@eqx.filter_jit
def _answers(statistic: AbstractStatistic, published: Any, question: Any, records: Any) -> Float[Array, "N D"]:
    def one(record: Any) -> Array:
        return statistic.answer(statistic.contribution(record, published), question).ravel()

    return jax.vmap(one)(records)
