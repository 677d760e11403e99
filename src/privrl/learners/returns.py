"""The number of records in released sums, if people return and the number of returns is secret.

There are N = first + R records: `first` people took part for the first time, a public number, and R of them came back,
of which only a bound is public, R <= most. A release counts the records with noise of variance s^2. The estimate is

    N-hat = count - s, cut to [first, first + most],      Var = min(s^2, most^2/12),

a little too small rather than too large. A learner that overestimates the number of records trusts the sums too much
and misreads them, and later sums do not correct it. If it underestimates the number, the sums correct it.

**Formal guarantee.** All of this is a function of a release and of public numbers, so it costs nothing. N-hat is within
its range, and whatever the true N in the range, E (N-hat - N)^2 <= min(2 s^2, most^2): count - s is off by the noise
and by s, and cutting to an interval that holds N moves it no further away. Normal noise puts it above N with
probability .16 at most, unless there are fewer records than first arrivals: every person who took part for the first
time is assumed to leave a record, as in studies where that number is public. Var is the variance of the count, or of a
number that is uniform on its range where that is smaller.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class RecordsSoFar(eqx.Module):
    """The numbers of records that a learner which reads block by block remembers, if people return.

    `first` of the people in the sums took part for the first time, and `records` is the sum of the lengths of all
    blocks so far.
    """

    first: Float[Array, ""]
    records: Float[Array, ""]

    @classmethod
    def from_nothing(cls) -> "RecordsSoFar":
        """Before any block."""
        return cls(jnp.zeros(()), jnp.zeros(()))

    def add_block(
        self,
        arrived: Float[Array, ""],
        counted: Float[Array, ""],
        variance: Float[Array, ""],
        most: Float[Array, ""],
    ) -> tuple["RecordsSoFar", Float[Array, ""], Float[Array, ""]]:
        """One more block, in which `arrived` people took part for the first time.

        Arguments:
            counted: the released number of records of all blocks, with noise of this `variance`.
            most: the largest number of records of people who came back.

        Returns:
            what is remembered now, the length of the block (at least 0), and the variance of the number of records.
            Errors do not add up over blocks: those of all lengths together are those of one release, up to where
            lengths were cut.
        """
        first = self.first + arrived
        found, variance = number_of_records(counted, variance, first, most)
        length = jnp.maximum(found - self.records, 0.0)
        return RecordsSoFar(first, self.records + length), length, variance


def number_of_records(
    counted: Float[Array, ""], variance: Float[Array, ""], first: Float[Array, ""], most: Float[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """N-hat and Var, from a released count with noise of this variance."""
    found = jnp.clip(counted - jnp.sqrt(variance), first, first + most)
    return found, jnp.minimum(variance, most**2 / 12.0)


def check_returns(returns: int) -> None:
    """Refuses anything but a whole number of further episodes."""
    if returns < 0:
        raise ValueError(f"`returns` is {returns}; a person has 0 or more further episodes.")
