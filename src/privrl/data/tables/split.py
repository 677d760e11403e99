"""Two disjoint groups of people: those who are learnt from, and those who are held out to evaluate with."""

import os

from privrl.data.dataset import AbstractDataset
from privrl.data.tables.part import Part


def split(data: AbstractDataset, share: float = 0.3, *, secret: bytes | None = None) -> tuple[Part, Part]:
    """The people to learn from, and about a `share` of all to hold out, each person with all their episodes.

    Arguments:
        data: all of them.
        share: the probability with which a person is held out.
        secret: at least 32 random bytes that decide, with a person's id, where they go: the same bytes give the same
            groups. Keep them as secret as the table. Left out, the operating system draws them.

    **Formal guarantee.** A person's group depends on the secret and their id, on nothing else: neither on what happened
    to anybody, nor on who else is there. Releases about one group say nothing about people of the other.
    """
    if not 0.0 < share < 1.0:
        raise ValueError(f"`share` is {share}; it must lie in (0, 1).")
    if secret is not None and len(secret) < 32:
        raise ValueError(f"`secret` has {len(secret)} bytes; give at least 32 random ones, or leave it out.")
    held = data.unit_draws(os.urandom(32) if secret is None else secret, "held out") < share
    return Part(data, ~held), Part(data, held)
