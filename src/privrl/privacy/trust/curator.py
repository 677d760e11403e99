"""The curator of a data set at rest: the only object that reads records. It answers with releases."""

import functools
import os
from collections.abc import Callable

import numpy as np
from jaxtyping import Array, Float, Float64

from privrl.contracts.release import Release
from privrl.contracts.statistic import AbstractStatistic
from privrl.privacy.accounting.ledger import Ledger, OverspentError
from privrl.privacy.functions.linear_functions import Features, ReleasedLinearFunction
from privrl.privacy.functions.released import ReleasedFunction, whiten_functions
from privrl.privacy.noise.arithmetic import AbstractArithmetic, Floating
from privrl.privacy.noise.distributions import GaussianNoise
from privrl.privacy.noise.lattice import Lattice, choose_lattice
from privrl.privacy.noise.poisson_sample import PoissonSample
from privrl.privacy.noise.sources import AbstractSource, Seeded, System
from privrl.privacy.store.errors import BurntError
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.channels import NoiseKind, SumNoise, noise_of, sensitivity_of
from privrl.privacy.trust.contents import Contents, contents_of_vector
from privrl.privacy.trust.people import AbstractPeople


class Curator:
    """Answers a learner's queries about people with noise, and counts every answer.

    **Formal guarantee.** If a statistic is of all records of a person together (`per_person`), replacing one person
    moves the sum by its sensitivity. Otherwise a person owns at most `records_per_unit` kept records. Match the records
    of two neighbouring data sets one by one; if a person may have several, one may be missing and contribute zero, so a
    term's own norm counts too. Their sums then differ by at most `records_per_unit` times the statistic's
    sensitivity. Noise of scale sensitivity / parameter is drawn once per release, after the ledger has agreed and
    before anything is returned.
    For a choice, only the number of the largest sum is released (`noise/maximum.py`); its sensitivity is the spread.
    Statistics may depend on earlier releases: the parameter is fixed beforehand, so this is ordinary adaptive
    composition. Randomness from the operating system makes exact noise on a lattice; a seed makes floating-point noise,
    which protects no one.

    With a store, every release is reserved there before its noise is drawn, and stored before it is returned. The
    lattice, and hence the noise, is part of the reservation, so the charge belongs to the noise that is drawn. After a
    crash, a release that was stored is read, not drawn. One that was only reserved is lost: it stays counted, and the
    rest of the budget pays for making it again (`Ledger.burn`).

    If declarations name groups, every person is in one group by a random draw of their own: a pseudorandom function of
    their id under a secret key, the same on every pass and after every restart, wherever their rows are. A release of
    a group sums over its people. Give the replaced (or added) person the same draw in both worlds: for all draws, only
    releases without a group and those of one group differ, so the worst group bounds the cost (parallel composition),
    and the draws, equally distributed in both worlds, add nothing (proof: `docs/proofs/tables.md`).
    """

    def __init__(
        self,
        people: AbstractPeople,
        ledger: Ledger,
        source: AbstractSource,
        mechanism: NoiseKind,
        store: ReleaseStore | None = None,
        watch: Callable[[str, AbstractStatistic, Release], None] | None = None,
    ) -> None:
        self._people = people
        self._ledger = ledger
        self._source = source
        self._mechanism: NoiseKind = mechanism
        self._store = store
        self._watch = watch  # called with every released sum
        self._asked: dict[str, int] = {}
        self._parts: dict[str | None, AbstractPeople] = {None: people}

    def __call__(self, name: str, statistic: AbstractStatistic | None = None) -> Release:
        """Releases a declared statistic, or the one passed here if the declaration left it open."""
        declared = self._ledger.declared(name)
        chosen = declared.statistic if statistic is None else statistic
        if chosen is None:
            raise ValueError(f"Release `{name}` was declared without a statistic. Pass the one to release.")
        records = 1 if chosen.per_person else self._people.records_per_unit
        choice = declared.access == "choice"
        mechanism: SumNoise = "exponential" if choice else self._mechanism
        sensitivity = self._sensitivity(chosen, mechanism, declared.sampling, records)

        def lattice(parameter: float) -> Lattice:
            return choose_lattice(
                parameter=parameter,
                sensitivity=sensitivity,
                norm=sensitivity_of(chosen, "laplace" if choice else mechanism, "add-remove"),
                # Truncating moves the scores of two candidates apart by less than one step each.
                filled=2 if choice else self._people_of(declared.group).filled(chosen),
                kind="l2" if mechanism == "gaussian" else "l1",
                records=records,
            )

        def sum_people(number: int, arithmetic: AbstractArithmetic) -> Array | np.ndarray:
            people = self._people_of(declared.group)
            included = self._sample(name, number, declared.sampling, records)
            return people.total(chosen, included, arithmetic)

        distribution = functools.partial(noise_of, chosen, mechanism)
        release = self._release(name, Contents(records * sensitivity, distribution, lattice, sum_people))
        if self._watch is not None:
            self._watch(name, chosen, release)
        return release

    def vector(self, name: str, value: Float[Array, "..."], *, distance: float, bound: float) -> Release:
        """Releases a vector that is not a sum over people, but that one person can move by at most `distance` (L2).

        `bound` is a public bound on its entries. A value beyond it, or one that is not finite, is refused.

        **Formal guarantee.** Truncating toward zero moves two entries apart by less than one step of the lattice, so
        neighbours' steps are at most distance/g + sqrt(entries) apart, which the noise covers. This does not depend on
        the size of the vector; the bound ensures that whole numbers stay within 64 bits.
        """
        contents = contents_of_vector(name, value, distance, bound)
        declared = self._ledger.declared(name)
        if declared.statistic is not None or declared.sampling < 1.0 or declared.group is not None:
            raise ValueError(
                f"`{name}` is not a sum over people, so it cannot have a `statistic`, `sampling` or a `group`. Declare "
                f"it as `Declared({name!r})`."
            )
        if self._mechanism == "laplace":
            raise ValueError(
                f"`{name}` is released with Gaussian noise, and this budget is for Laplace noise. Use "
                "`Central(..., mechanism='gaussian')` with a delta."
            )
        return self._release(name, contents)

    def function(
        self, name: str, values: Float[Array, "*m n"], *, distance: float, beta: float, bound: float
    ) -> ReleasedFunction:
        """Releases functions on [0, 1], which can then be queried any number of times at no further cost.

        Arguments:
            values: one function per row, at the n = 2^depth + 1 points of `mesh_points(depth)`.
            distance: bounds the `rkhs_norm` (kernel exp(-beta|x-y|), all rows together) of the difference that one
                person can make.
            beta: the parameter of the kernel.
            bound: a public bound on all values.
        """
        white, apart, largest = whiten_functions(values, distance=distance, beta=beta, bound=bound)
        return ReleasedFunction.from_release(self.vector(name, white, distance=apart, bound=largest), beta)

    def secret(self, name: str, *, distance: float, beta: float) -> ReleasedFunction:
        """Releases the secret function, whose values lie in [0, 1]."""
        return self.function(name, self._people.function, distance=distance, beta=beta, bound=1.0)

    def features(
        self, name: str, weights: Float[Array, "*m d"], features: Features, *, distance: float, bound: float
    ) -> ReleasedLinearFunction:
        """Releases combinations of public features, one per row of `weights`, which can be queried any number of times.

        `distance` bounds the difference that one person can make to all weights together (L2). `bound` is a public
        bound on each of them.
        """
        release = self.vector(name, weights, distance=distance, bound=bound)
        assert isinstance(release.noise, GaussianNoise)
        return ReleasedLinearFunction(release.value, release.noise.scale, features)

    def _release(self, name: str, contents: Contents) -> Release:
        """Makes one release: counts it, and only then reads records, draws noise and records the release."""
        parameter, number = self._ledger.spend(name), self._next(name)
        label = f"{name}/{number}"
        exact = isinstance(self._source, System) and parameter < np.inf
        lattice = self._reserved(label, contents.lattice(parameter), parameter) if exact else None
        arithmetic: AbstractArithmetic = Floating(contents.sensitivity, parameter) if lattice is None else lattice

        def prepare() -> Callable[[], Array | np.ndarray]:
            """Reads the records now, and returns a function that draws the noise."""
            total = contents.content(number, arithmetic)
            if parameter == np.inf:
                return lambda: total
            distribution, randomness = contents.distribution(arithmetic.scale), self._source.randomness((name, number))
            return lambda: arithmetic.add_noise(distribution, total, randomness)

        noisy: Array | np.ndarray | None = None
        if self._store is None:
            noisy = prepare()()
        elif not self._given_up(label):
            assert lattice is not None  # a store is only for exact releases
            # The pass over the records comes before the reservation: a faulty table must not cost anything.
            draw = _never if self._store.value(label) is not None else prepare()
            charge = self._ledger.pool(name), self._ledger.charge(name, parameter)
            noisy = self._store.release(label, *charge, draw, distribution=lattice.to_bytes())  # type: ignore[arg-type]
            arithmetic = self._reserved(label, lattice, parameter)  # another process may have made the reservation
        self._ledger.record(name, arithmetic.sensitivity, arithmetic.scale)
        if noisy is None:
            return self._again(name, contents)
        return arithmetic.release(contents.distribution(arithmetic.scale), noisy)

    def _given_up(self, label: str) -> bool:
        """Whether a release was lost in a crash and made again from the rest of the budget. This never changes back."""
        assert self._store is not None
        return self._store.is_burnt(label) and (self._store.after_crash == "burn" or self._store.has_fact(_lost(label)))

    def _reserved(self, label: str, lattice: Lattice, parameter: float) -> Lattice:
        """The lattice that was reserved with this release, or `lattice` if there is no reservation yet.

        Another computer may round public numbers differently, so the reserved lattice is used, but only if its noise
        is sufficient for the present parameter.
        """
        reserved = None if self._store is None else self._store.distribution(label)
        if reserved is None:
            return lattice
        kept = Lattice.from_bytes(reserved)
        if not kept.covers(lattice, parameter):
            raise ValueError(
                f"Release `{label}` was reserved with less noise, or for another sensitivity, than it needs now. "
                "Nothing was released. Use the learner and settings with which this store was begun."
            )
        return kept

    def _again(self, name: str, contents: Contents) -> Release:
        """Makes a release again that a crash has burnt, from the rest of the budget."""
        try:
            self._ledger.burn(name)
        except OverspentError as error:
            raise BurntError(
                f"{error} A crash burnt it after its budget was reserved. Open the store with "
                "`after_crash='redraw'`: the first draw was never returned, so drawing again is safe."
            ) from error
        assert self._store is not None
        self._store.fact(_lost(f"{name}/{self._asked[name]}"), lambda: b"paid for by others")
        return self._release(name, contents)

    def people(self, group: str | None = None) -> int:
        """The number of people, or of those in a group.

        **Formal guarantee.** If neighbours replace one person, who keeps their draw, the number is the same in both
        worlds. Under add-remove it is secret, and refused.
        """
        if self._ledger.adjacency != "replace-one":
            raise ValueError("The number of people is not public under `adjacency='add-remove'`. Use 'replace-one'.")
        return self._people_of(group).num_units

    def skip(self, name: str, to: tuple[str, ...]) -> None:
        """Gives up the next release of `name` and spends its share on the coming releases of `to`."""
        if self._ledger.parameter(name) != np.inf:
            self._ledger.skip(name, to)

    def _next(self, name: str) -> int:
        """The number of the next release of a name, for the label of its noise."""
        self._asked[name] = self._asked.get(name, -1) + 1
        return self._asked[name]

    def _sensitivity(self, statistic: AbstractStatistic, mechanism: SumNoise, sampling: float, records: int) -> float:
        """The amount by which one of a person's `records` can move the released sum.

        Under Poisson sampling and replacement, the two worlds may also differ by a term against *no* term: a person who
        is not drawn contributes zero, so the noise must cover twice the norm of one term, not the distance of two.
        """
        adjacency = self._ledger.adjacency
        if sampling < 1.0 and adjacency == "replace-one":
            return 2.0 * sensitivity_of(statistic, mechanism, "add-remove")
        apart = sensitivity_of(statistic, mechanism, adjacency)
        if records > 1:  # two people may differ in a record that one of them does not have
            return max(apart, sensitivity_of(statistic, mechanism, "add-remove"))
        return apart

    def _people_of(self, group: str | None) -> AbstractPeople:
        """All people, or those of a group. All groups are drawn together when the first of them is queried."""
        if group not in self._parts:
            groups = self._ledger.groups
            edges = np.cumsum(list(groups.values()))[:-1]
            self._parts |= dict(zip(groups, self._split(edges), strict=True))
        return self._parts[group]

    def _split(self, edges: Float64[np.ndarray, " G"]) -> list[AbstractPeople]:
        """Splits people into groups by a random draw for each id; simulated people, who have none, by the seed."""
        if isinstance(self._source, Seeded):
            draws = np.asarray(self._source.uniform(("groups",), (self._people.num_units,)))
            drawn = np.searchsorted(edges, draws, side="right")
            return [self._people.part(drawn == i) for i in range(len(edges) + 1)]
        key = os.urandom(32) if self._store is None else self._store.secret("groups")
        return self._people.groups(key, "groups", edges)

    def _sample(self, name: str, number: int, sampling: float, records: int) -> PoissonSample | None:
        """The secret Poisson sample of a release; `None` if all people take part."""
        if sampling == 1.0:
            return None
        if records > 1:
            raise ValueError(
                f"Release `{name}` samples people, which requires one record per person; this data set keeps up to "
                f"{records}. Keep one record of each person."
            )
        return PoissonSample(self._source.secret((name, number, "sample")), sampling)


def _never() -> np.ndarray:
    raise AssertionError("A release that has a value is not drawn.")


def _lost(label: str) -> str:
    """The name of the fact that a release is lost for good, because other releases have paid for making it again."""
    return f"lost: {label}"
