"""The noise of a paper on each person's own message, whatever it is worth."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax.numpy as jnp

from privrl.contracts.release import Declared
from privrl.contracts.statistic import Adjacency
from privrl.privacy.accounting.budget import Budget
from privrl.privacy.accounting.certificate import Notion
from privrl.privacy.accounting.events import Event
from privrl.privacy.accounting.ledger import Ledger
from privrl.privacy.trust.channels import Mechanism, sensitivity_of
from privrl.privacy.trust.local_channels import AbstractLocalChannel, VectorChannel
from privrl.privacy.trust.privatizers import AbstractPrivatizer, PairingError, _streamed


@dataclass(frozen=True)
class PublishedLocal(AbstractPrivatizer):
    """Local privacy with the noise of a paper: the certificate shows the claimed and the exact epsilon at one delta.

    Arguments:
        scales: from the declarations, per name the standard deviation that the paper adds to every entry.
        epsilon, delta: what the paper claims for one person's messages together.
        source: which paper.

    **Formal guarantee.** A message with sensitivity D and noise of scale s is exactly (D/s)-GDP. That is what is
    certified, whether it is more or less than the claim.
    """

    scales: Callable[[Sequence[Declared]], Mapping[str, float]]
    epsilon: float
    delta: float
    source: str
    adjacency: Adjacency = field(default="replace-one", init=False)
    notion: ClassVar[Notion] = "local"

    def __post_init__(self) -> None:
        Budget.of(epsilon=self.epsilon, delta=self.delta, rho=None)  # refuses a bad one at once

    @property
    def reported_delta(self) -> float:
        return self.delta

    @property
    def mechanism_of_rounds(self) -> Mechanism:
        raise PairingError("`PublishedLocal` has no curator to answer questions; use `Central(...)`.")

    @property
    def claimed(self) -> Mapping[str, Any]:
        return {"epsilon": self.epsilon, "delta": self.delta, "source": self.source}

    def check(self, learner: str, declared: Sequence[Declared]) -> None:
        known = self.scales(declared)
        for d in declared:
            if d.access == "rounds" or d.statistic is None:
                raise PairingError(
                    f"`{learner}` asks for `{d.name}` after people have left, and `PublishedLocal` keeps no raw data. "
                    "Use a learner that sends one message per person."
                )
            if d.name not in known:
                raise PairingError(f"The published noise of {self.source} has no scale for `{d.name}` of `{learner}`.")

    def calibrate(self, declared: Sequence[Declared]) -> Ledger:
        scales = self.scales(declared)
        events = [
            Event(d.name, "gaussian", self._sensitivity(d) / scales[d.name], d.touches, None, 1.0, None)
            for d in declared
        ]
        return Ledger(declared, events, self.adjacency)

    def channel(self, declared: Declared, ledger: Ledger) -> AbstractLocalChannel:
        sensitivity = self._sensitivity(declared)
        scale = sensitivity / ledger.parameter(declared.name)
        running = declared.access == "running"
        return VectorChannel(_streamed(declared), jnp.asarray(sensitivity), jnp.asarray(scale), running)

    def _sensitivity(self, declared: Declared) -> float:
        return sensitivity_of(_streamed(declared), "gaussian", self.adjacency)
