"""Releases and facts, which are written once. A release is reserved, drawn, stored, and only then returned."""

import abc
from collections.abc import Callable
from typing import Literal

import numpy as np
from jaxtyping import Int64

from privrl.privacy.store.engine import AbstractEngine, check_amount, now
from privrl.privacy.store.errors import BurntError, StoreBudgetError, StoreError
from privrl.privacy.store.sums import check_integers, columns, integers

AfterCrash = Literal["burn", "redraw"]


class AbstractReleases(abc.ABC):
    """The part of a store that makes each release once."""

    _engine: AbstractEngine
    after_crash: AfterCrash

    @abc.abstractmethod
    def _reached(self, point: str) -> None:
        """Called at every point of the protocol where a crash makes a difference."""

    def release(
        self,
        name: str,
        pool: str,
        charge: float,
        draw: Callable[[], Int64[np.ndarray, "..."]],
        *,
        distribution: bytes = b"",
    ) -> Int64[np.ndarray, "..."]:
        """Returns the value of the release `name`, which is drawn once, charged once, and never changes.

        If another process is drawing it, this one waits. If `draw` raises, the charge stays spent and the release is
        burnt.

        Arguments:
            pool: the pool that pays.
            charge: what the release costs.
            draw: draws the noisy integers. Called at most once, after the reservation is committed.
            distribution: describes the noise that `draw` adds. It is written with the reservation, before anything is
                drawn, and never changes.

        Raises:
            StoreBudgetError: if the pool has too little budget left.
            BurntError: if a process reserved the release and died before it stored a value.
            ValueError: if the release was reserved with another pool, charge or distribution.
        """
        check_amount("charge", charge)
        stored = self._stored(name, pool, charge, distribution)
        if stored is not None and stored[1] is not None:
            self._engine.tell_log()
            return integers(*stored)
        with self._engine.owner(name):
            stored = self._stored(name, pool, charge, distribution)
            if stored is None:
                self._reserve(name, pool, charge, distribution)
            elif stored[1] is not None:
                self._engine.tell_log()
                return integers(*stored)
            elif self.after_crash == "burn":
                raise BurntError(
                    f"The process that reserved the release `{name}` stopped before it stored a value. Its charge of "
                    f"{charge:g} stays spent. Use a new name, or open the store with after_crash='redraw'."
                )
            else:
                with self._engine.transaction("redraw", f"release {name}"):
                    self._engine.digest_key()
                    self._engine.chain("redraw", name)
            value = draw()
            self._reached("drawn")
            check_integers("the value of `draw()`", value)
            with self._engine.transaction("persist", f"release {name}"):
                # Safety does not rest on the lock: if another process has stored a value, a trigger refuses this one.
                self._engine.execute(
                    "UPDATE releases SET shape = ?, value = ?, released = ? WHERE name = ?",
                    *columns(value),
                    now(),
                    name,
                )
                self._engine.chain("value", name)
        return value.copy()

    def value(self, name: str) -> Int64[np.ndarray, "..."] | None:
        """The stored value of a release, or `None`."""
        found = self._engine.execute(
            "SELECT shape, value FROM releases WHERE name = ? AND value IS NOT NULL", name
        ).fetchone()
        if found is None:
            return None
        self._engine.tell_log()
        return integers(*found)

    def distribution(self, name: str) -> bytes | None:
        """The noise distribution that a release was reserved with; `None` if the release is not reserved."""
        found = self._engine.execute("SELECT distribution FROM releases WHERE name = ?", name).fetchone()
        return None if found is None else found[0]

    def is_burnt(self, name: str) -> bool:
        """Whether a release is reserved, has no value, and no process is drawing it. Waits while one is."""
        query = "SELECT value IS NULL FROM releases WHERE name = ?"
        if self._engine.execute(query, name).fetchone() != (1,):
            return False
        with self._engine.owner(name, drawing=False):
            return self._engine.execute(query, name).fetchone() == (1,)

    def _stored(
        self, name: str, pool: str, charge: float, distribution: bytes
    ) -> tuple[str, bytes] | tuple[None, None] | None:
        """Shape and value of a release, both `None` if it is only reserved."""
        found = self._engine.execute(
            "SELECT pool, charge, distribution, shape, value FROM releases WHERE name = ?", name
        ).fetchone()
        if found is not None and found[:2] != (pool, charge):
            raise ValueError(
                f"The release `{name}` was charged {found[1]:g} to `{found[0]}`, not {charge:g} to `{pool}`. Pass the "
                "same charge, or use a new name for a new release."
            )
        if found is not None and found[2] != distribution:
            raise ValueError(
                f"The release `{name}` was reserved with another noise distribution. Draw from the one that is stored, "
                "`store.distribution(name)`, or use a new name for a new release."
            )
        return None if found is None else found[3:]

    def _reserve(self, name: str, pool: str, charge: float, distribution: bytes) -> None:
        with self._engine.transaction("reserve", f"release {name}"):
            self._engine.digest_key()
            limits = self._engine.limits()
            if pool not in limits:
                raise StoreError(
                    f"There is no pool `{pool}` to charge; `open_study` declared {sorted(limits) or 'none yet'}."
                )
            query = "SELECT COALESCE(SUM(charge), 0.0) FROM releases WHERE pool = ?"
            (spent,) = self._engine.execute(query, pool).fetchone()
            try:
                insert = "INSERT INTO releases (name, pool, charge, distribution, reserved) VALUES (?, ?, ?, ?, ?)"
                self._engine.execute(insert, name, pool, float(charge), distribution, now())
            except self._engine.refusals as error:
                why = str(error).splitlines()[0]
                raise StoreBudgetError(
                    f"The release `{name}` costs {charge:g} and the pool `{pool}` has spent {spent:g} of "
                    f"{limits[pool]:g} ({why}). Nothing was reserved. Stop here, or release less."
                ) from error
            self._engine.chain("reserve", name)

    def fact(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Returns a small value that is written once: the first writer wins, and all read the same. Survives
        `purge`.
        """
        query = "SELECT content FROM facts WHERE name = ?"
        found = self._engine.execute(query, name).fetchone()
        if found is not None:
            self._engine.tell_log()
        else:
            content = make()
            with self._engine.transaction("fact", f"fact {name}"):
                found = self._engine.execute(query, name).fetchone()
                if found is None:
                    self._engine.digest_key()
                    self._engine.execute("INSERT INTO facts VALUES (?, ?)", name, content)
                    self._engine.chain("fact", name)
                    found = (content,)
        return found[0]

    def has_fact(self, name: str) -> bool:
        """Whether a fact was written."""
        return self._engine.execute("SELECT 1 FROM facts WHERE name = ?", name).fetchone() is not None
