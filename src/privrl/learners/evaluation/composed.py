"""What learners share that learn with another one: the world is the other one's."""

from typing import Any

import equinox as eqx

from privrl.contracts.learner import AbstractOfflineLearner


class AbstractComposed(AbstractOfflineLearner):
    """Learns with `learner`, in its world and with its arrays, and does something besides."""

    learner: eqx.AbstractVar[AbstractOfflineLearner]

    @property
    def horizon(self) -> int:
        return self.learner.horizon

    @property
    def space(self) -> tuple[int, int]:
        return self.learner.space

    @property
    def largest_array(self) -> int:
        return self.learner.largest_array

    @property
    def measurements(self) -> tuple[Any, ...]:
        return self.learner.measurements
