"""What a released sum says about visits, whatever else it is about: for reports, which make no queries of their own."""

from typing import Protocol, runtime_checkable

from jaxtyping import Array, Float


@runtime_checkable
class TellsVisits(Protocol):
    """A statistic whose released sum says how often each action was taken in each state, up to one common factor."""

    def visits_of(self, entries: Float[Array, "..."]) -> Float[Array, "S A"]:
        """The entries about visits, selected or added up; of independent noise it takes variances to variances."""
        ...
