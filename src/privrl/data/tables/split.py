"""Split people into two disjoint groups: one to learn from, and one to evaluate with."""

import os

from privrl.data.dataset import AbstractDataset
from privrl.data.tables.part import Part


def split(data: AbstractDataset, share: float = 0.3, *, secret: bytes | None = None) -> tuple[Part, Part]:
    """Split a dataset into the people to learn from and the people held out, each person with all their episodes.

    >>> import privrl
    >>> zeros, ones = [[0]] * 100, [[1.0]] * 100
    >>> data = privrl.data.Episodes.from_arrays(zeros, zeros, ones, horizon=1, num_states=1, num_actions=1)
    >>> learn, held_out = privrl.data.split(data, share=0.3)
    >>> learn.num_units + held_out.num_units
    100

    Arguments:
        data: the dataset of all people.
        share: the probability with which a person is held out.
        secret: at least 32 random bytes. With a person's id they decide the group, so the same bytes give the same
            groups. Keep them as secret as the table. By default, the operating system draws them.

    Raises:
        ValueError: if `share` is not in (0, 1), or `secret` is too short.

    **Formal guarantee.** A person's group depends only on the secret and their id: neither on any record nor on the
    other people in the dataset. Releases about one group reveal nothing about people of the other.
    """
    if not 0.0 < share < 1.0:
        raise ValueError(f"`share` is {share}; it must lie in (0, 1).")
    if secret is not None and len(secret) < 32:
        raise ValueError(f"`secret` has {len(secret)} bytes. Give at least 32 random bytes, or leave it out.")
    held = data.unit_draws(os.urandom(32) if secret is None else secret, "held out") < share
    return Part(data, ~held), Part(data, held)
