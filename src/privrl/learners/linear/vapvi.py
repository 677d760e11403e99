"""VAPVI: variance-aware pessimistic value iteration [qiao-wang Algorithm 2].

     2: V_{H+1} = 0
     3: for h = H, ..., 1:
     4:     Sigma_h  = sum' phi phi^T + (lambda + shift) I                                     (release `spread`)
     5:     beta_h   = Sigma_h^{-1} sum' phi V_{h+1}(s')^2                                     (release `squares`)
     6:     theta_h  = Sigma_h^{-1} sum' phi V_{h+1}(s')                                       (release `values`)
     7:     Var_h    = clip(phi^T beta_h, 0, (H-h+1)^2) - clip(phi^T theta_h, 0, H-h+1)^2
     8:     sigma2_h = max(1, Var_h)
     9:     Lambda_h = sum phi phi^T / sigma2_h + (lambda + shift) I                           (release `gram`)
    10:     w_h      = Lambda_h^{-1} sum phi (r + V_{h+1}(s')) / sigma2_h                      (release `targets`)
    11:     Gamma_h  = C sqrt(d) ||phi||_{Lambda_h^{-1}} + D/K
    12:     Q_h      = phi^T w_h - Gamma_h
    13:     Q_h      = clip(Q_h, 0, H-h+1)
    14:     pi_h     = argmax_a Q_h, ties shared,  V_h = max_a Q_h

sum runs over D and sum' over D': disjoint halves of the people with `split`, all people without. `shift`, the bound on
the spectral norm of the noise in the matrix, is 0 without noise; the paper's E/2 is too small by sqrt 2 because its
noise protects the addition of a person, not the replacement of one.

Calibrations. The paper (`"paper"`) charges 2H^2, 2H, 2H for the vectors of lines 5, 6, 10. V_{h+1} is at most H-h,
hence 2(H-h)^2, 2(H-h), 2(H-h+1) (`"range"`). V_{h+1} comes from earlier releases, so its range is public: centred in
it, with span = sup V - inf V, the vectors cost span^2/4, span, span + 1 (`"span"`), and P(V - c) = PV - c puts the
centre back. The weights 1/sigma2_h are public too, and their maximum, at most 1, scales what lines 9 and 10 cost.

Where V_{h+1} lies in an interval of length at most 2 its variance is at most 1 and line 8 gives 1 whatever the data:
lines 4 to 7 are left out. Where the interval is [0, H-h] this is known beforehand and nothing is declared; where it is
the span, the shares of lines 4 to 6 are skipped and spent on later releases of the same people.
"""

from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from privrl.contracts.learner import Ask
from privrl.contracts.release import Declared
from privrl.learners.linear.pevi import AbstractPessimisticRegression, pessimistic_values
from privrl.statistics.moments import Gram, Targets

_VARIANCE = ("spread", "squares", "values")
_REGRESSION = ("gram", "targets")
_VARIANCE_SHARE = 0.25  # of one release for the variances against one of the regression: weights may be coarse


class VAPVI(AbstractPessimisticRegression):
    """Pessimistic value iteration on linear features, each person weighed by how certain their next value is.

    >>> world = privrl.envs.make("riverswim", states=3, horizon=4)
    >>> learner = privrl.VAPVI(world.features, 4)
    >>> privrl.fit(world, learner, privrl.Central(epsilon=1, delta=1e-6), episodes=200, key=0)
    Result(released without evidence, TabularPolicy, VAPVI, central privacy, epsilon 1, delta 1e-06, simulated noise)

    Arguments: those of `AbstractPessimisticRegression`, and
        calibration: what the noise is calibrated to: `"span"` (the released range of V), `"range"` (the largest
            possible one) or `"paper"` (H at every step).
        split: estimate variances on one half of the people and values on the other, as in the paper's theorem.
        lower_order: the paper's D/K as one public number; 0 as in the paper's experiment.
    """

    calibration: Literal["span", "range", "paper"] = eqx.field(static=True, default="span")
    split: bool = eqx.field(static=True, default=False)
    lower_order: float = eqx.field(static=True, default=0.0)

    def bounds(self) -> dict[str, object]:
        people = "two random halves" if self.split and self._uncertain else "all people in every release"
        return super().bounds() | {"people": people}

    @property
    def _uncertain(self) -> int:
        """The number of steps at which the variance of V_{h+1} is not known beforehand to be at most 1."""
        return self.horizon if self.calibration == "paper" else max(self.horizon - 3, 0)

    def declare(self) -> tuple[Declared, ...]:
        """Without a split all releases share the budget; with one, those of each half have all of it."""
        H, T = self.horizon, self._uncertain
        if not T:
            return tuple(Declared(name, times=H, gaussian=True) for name in _REGRESSION)
        if self.split:
            return (
                *(Declared(name, times=T, weight=1 / 3, group="variances", gaussian=True) for name in _VARIANCE),
                *(Declared(name, times=H, weight=1 / 2, group="values", gaussian=True) for name in _REGRESSION),
            )
        share = 1.0 if self.calibration == "paper" else _VARIANCE_SHARE
        return (
            *(Declared(name, times=T, weight=share * T, gaussian=True) for name in _VARIANCE),
            *(Declared(name, times=H, weight=float(H), gaussian=True) for name in _REGRESSION),
        )

    def values(self, ask: Ask, h: int, V: Float[Array, " S"]) -> Float[Array, "S A"]:
        H, at = self.horizon, jnp.asarray(h)
        low, high = self._interval(V, h)
        sigma2 = self._variances(ask, h, V, low, high)
        bound = 1.0 if self.calibration == "paper" else None
        weights = None if sigma2 is None else 1 / sigma2
        gram = ask("gram", Gram(self.features, at, weights=weights, weight_bound=bound))  # [qiao-wang A2:9]
        top = high - 1 if self.calibration == "paper" else high  # the paper bounds r + V_{h+1}, not V_{h+1}, by H
        targets = Targets(self.features, at, V, low, top, weights=weights, weight_bound=bound, centred=self._centred)
        ridge = self.ridge + gram.noise.spectral_bound(self.failure / (2 * H))
        regression = (gram.value, ask("targets", targets).value, targets.midpoint, ridge)
        return pessimistic_values(  # [qiao-wang A2:10-13] C is `bonus`; D/K is 0 unless given
            self.features.table, *regression, self.bonus, jnp.asarray(float(H - h)), self.lower_order
        )

    @property
    def _centred(self) -> bool:
        return self.calibration == "span"

    def _interval(self, V: Float[Array, " S"], h: int) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """A public interval that holds V_{h+1}."""
        if self.calibration == "span":
            return V.min(), V.max()
        return jnp.zeros(()), jnp.asarray(float(self.horizon - h - 1 if self.calibration == "range" else self.horizon))

    def _variances(
        self, ask: Ask, h: int, V: Float[Array, " S"], low: Float[Array, ""], high: Float[Array, ""]
    ) -> Float[Array, "S A"] | None:
        """[qiao-wang A2:4-8] for one step; `None` where every variance is at most 1."""
        H = self.horizon
        if self.calibration != "paper" and H - h - 1 <= 2:
            return None
        if self.calibration != "paper" and float(high - low) <= 2.0:
            self._pass_on(ask, h)
            return None
        c = (low + high) / 2 if self._centred else jnp.zeros(())
        widest = jnp.maximum((low - c) ** 2, (high - c) ** 2)
        zero, where = jnp.zeros(()), (self.features, jnp.asarray(h))
        squares = Targets(
            *where, (V - c) ** 2, zero, widest, with_reward=False, centred=self._centred, unrecorded=(low - c) ** 2
        )
        values = Targets(*where, V, low, high, with_reward=False, centred=self._centred)
        spread = ask("spread", Gram(*where))  # [qiao-wang A2:4]
        ridge = self.ridge + spread.noise.spectral_bound(self.failure / (2 * H))
        second = (ask("squares", squares).value, squares.midpoint, zero, jnp.minimum(widest, (H - h) ** 2))
        first = (ask("values", values).value, values.midpoint - c, low - c, jnp.minimum(high, H - h) - c)
        return _variance_bounds(self.features.table, spread.value, ridge, second, first)

    def _pass_on(self, ask: Ask, h: int) -> None:
        """Spends the shares of lines 4 to 6 on later releases: of the regression, or of the variances' own half."""
        for name in _VARIANCE:
            if not self.split or h > 0:
                ask.skip(name, (name,) if self.split else _REGRESSION)


_Moment = tuple[Float[Array, " d"], Float[Array, ""], Float[Array, ""], Float[Array, ""]]


@eqx.filter_jit
def _variance_bounds(
    phi: Float[Array, "S A d"], gram: Float[Array, "d d"], ridge: Float[Array, ""], second: _Moment, first: _Moment
) -> Float[Array, "S A"]:
    """[qiao-wang A2:5-8]; a moment is its targets, what was subtracted from them, its least and its largest value."""
    Sigma = gram + ridge * jnp.eye(phi.shape[-1])

    def moment(targets: Array, midpoint: Array, least: Array, largest: Array) -> Array:
        return jnp.clip(phi @ jnp.linalg.solve(Sigma, targets) + midpoint, least, largest)

    return jnp.maximum(1.0, moment(*second) - moment(*first) ** 2)
