"""LAP: linear advantage planning on measurements (privrl 2026).

`TDFP` for rows of real numbers: phi(s) x a in the place of cells (s, a). Releases, with the share of mu^2 of each:

    columns (.04):   histograms of the measurements; medians and quantiles standardise phi
    gram (.20):      G_a = sum phi phi^T 1[a] by action, which also says what practice does     `lap_regression.py`
    returns (.06):   sum phi (y - 1/2), y the return to go in [0, 1];   F_1 = clip(1/2 + phi^T f, 0, 1)
    round-k (.64):   b_a = sum phi e 1[a], e_t = delta_t + gamma trace e_{t+1}, delta = unit r + gamma F_k(s') - F_k(s);
                     theta0 and theta_a by empirical Bayes, theta_a with what earlier rounds have measured;
                     kappa is their typical posterior standard deviation
                     pi_k(s) = argmax phi^T theta_a + kappa log P(a|s)   over a with P(a|s) >= .1 max P
                     F_k+1 = clip(F_k + phi^T theta0 + phi^T theta_{pi_k(s)}, 0, 1)
    norms (6 x .01): a histogram before each of gram, returns and the rounds, from which its clip level is read

F is an approximation, a quadratic and stationary function of what was measured, and every round passes its error on to
the next one. With a trace (Peng and Williams 1996; Schulman et al. 2016) what really came later counts besides F, half
as much for every step. A trace of 0 leaves the error of one step; 1 is return minus F, which is noisier.

The policy is the last pi_k: stationary, and near practice where little is known. A person with several stays is
clipped as a whole. Each release is one pass over the table. All constants are public; they were chosen on the worlds
`vitals` and `glucose-day`.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from privrl.contracts.learner import AbstractOfflineLearner, Ask, Solution
from privrl.contracts.release import Declared
from privrl.learners.continuous.lap_regression import Carried, Moments, advantages, common, standard_values
from privrl.learners.restriction import list_rules
from privrl.learners.tabular.clip_levels import ClipLevel, clip_level
from privrl.mdp.anchored import LayeredValue
from privrl.mdp.measured_policy import MeasuredPolicy
from privrl.mdp.measurements import Feature, Measurement, check_measurements
from privrl.mdp.quadratic_features import QuadraticFeatures, check_products
from privrl.mdp.rules import Rules
from privrl.statistics.column_shares import ColumnShares
from privrl.statistics.norms import PersonNorms
from privrl.statistics.person_sums import AbstractPersonSum, ActionGrams, FeatureErrors, FeatureReturns, Rewarding
from privrl.statistics.setting_checks import check_sizes

_NORMS = 0.01
_SHARES = {"columns": 0.04, "gram": 0.20, "returns": 0.06}
_QUANTILES = {"gram": 0.5, "returns": 0.7, "round": 0.5}
_SAMPLING = 1.5  # of C^2: how much larger the mean square of a person's vector is taken to be
_RANGE = 1e-4  # the smallest clip level, of the largest


class LAP(AbstractOfflineLearner):
    """Linear advantage planning, for measurements with gaps and a few actions.

    >>> world = privrl.envs.make("anticoagulation", horizon=3)
    >>> people = world.sample(world.behaviour_policy(), 100, jax.random.key(0))
    >>> table = privrl.data.Episodes.from_trajectories(people, features=world.columns, num_actions=world.num_actions)
    >>> learner = privrl.LAP(world.columns, world.num_actions, world.horizon, rounds=(1.0,))
    >>> privrl.fit(table, learner, privrl.Central(epsilon=1, delta=1e-6), key=0)
    Result(released without evidence, MeasuredPolicy, LAP, central privacy, epsilon 1, delta 1e-06, simulated noise)

    Arguments:
        columns: what a row holds: measurements with public bounds, and categories.
        num_actions, horizon: public.
        rewards_at_end: only the last step of a stay pays, and every episode ends with its last row. Otherwise
            rewards are discounted, and an episode has ended only if the table marks its end.
        discount: gamma, where rewards do not come at the end.
        largest_reward: the public bound on the reward of one step; rewards above it are cut.
        products: pairs of measurements whose product is a feature; `None`: all pairs.
        rounds: shares of the rounds in what is left for them.
        anchor: kappa in typical posterior standard deviations: how strongly practice's own choice counts.
        support: the smallest frequency of an advised action in practice, relative to its most frequent action.
        trace: in [0, 1], how far what came later counts in a round, besides what is expected of the next state.
        rules: public rules; those that do not depend on the previous action restrict the choices of every round.

    Raises:
        ValueError: a setting is out of its range.
    """

    columns: tuple[Measurement, ...] = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    rewards_at_end: bool = eqx.field(static=True, default=False)
    discount: float = eqx.field(static=True, default=0.9)
    largest_reward: float = eqx.field(static=True, default=1.0)
    products: tuple[tuple[str, str], ...] | None = eqx.field(static=True, default=None)
    rounds: tuple[float, ...] = eqx.field(static=True, default=(1.0, 1.0, 1.0, 2.0))
    anchor: float = eqx.field(static=True, default=1.0)
    support: float = eqx.field(static=True, default=0.1)
    trace: float = eqx.field(static=True, default=0.5)
    rules: Rules = eqx.field(static=True, default=Rules())
    gives_values: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_measurements(self.columns)
        check_products(self.columns, self.products)
        check_sizes(num_actions=self.num_actions, horizon=self.horizon)
        if not self.rounds or min(self.rounds) <= 0:
            raise ValueError(f"`rounds` is {self.rounds}; there must be at least one, each with a positive share.")
        if not (0.0 <= self.support <= 1.0 and 0.0 <= self.trace <= 1.0 and self.anchor >= 0.0):
            raise ValueError(
                f"`support` is {self.support}, `trace` is {self.trace} and `anchor` is {self.anchor}; the first two "
                "must lie in [0, 1] and the last must not be negative."
            )

    @property
    def space(self) -> tuple[int, int]:
        return len(self.columns), self.num_actions

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        return self.columns

    @property
    def largest_array(self) -> int:
        """Of the Gram matrices: while one stay is summed, or the matrices themselves."""
        phi = QuadraticFeatures.unscaled(self.columns, self.products)
        return ActionGrams(phi, self.num_actions, jnp.ones(())).hints.working_entries(self.horizon)

    @property
    def _rewarding(self) -> Rewarding:
        return Rewarding(self.rewards_at_end, self.discount, self.largest_reward)

    def bounds(self) -> dict[str, object]:
        phi = QuadraticFeatures.unscaled(self.columns, self.products)
        return {
            "horizon": self.horizon,
            "columns": [str(column) for column in self.columns],
            "features": phi.dim,
            "contribution norm": "released quantiles of norms, of a person with all their stays",
            "reward range": [0.0, self.largest_reward],
            "rewards": "estimated",
            **list_rules(self.rules),
        }

    def declare(self) -> tuple[Declared, ...]:
        left = 1.0 - sum(_SHARES.values()) - _NORMS * (2 + len(self.rounds))
        shares = {"columns": _SHARES["columns"]}
        for name in ("gram", "returns"):
            shares |= {f"{name}-norms": _NORMS, name: _SHARES[name]}
        for k, share in enumerate(self.rounds, 1):
            shares |= {f"round-norms-{k}": _NORMS, f"round-{k}": left * share / sum(self.rounds)}
        return tuple(Declared(name, weight=share, gaussian=True) for name, share in shares.items())

    def fit(self, ask: Ask) -> Solution:
        """The policy, and the weights of f, how well people fare under practice (`mdp/value_features.py`)."""
        phi = self._features(ask)
        size, most = phi.largest_norm, float(self.horizon)
        unit = jax.device_put(np.ones(()))
        grams = ActionGrams(phi, self.num_actions, unit)
        released, noise, _ = self._asked(ask, "gram", grams, most * size**2)
        moments = Moments.of(grams.matrices(released), noise)
        returns = FeatureReturns(phi, self.num_actions, unit, self._rewarding)
        b, noise, clip = self._asked(ask, "returns", returns, most * size)
        f = common(moments, b, noise, self._sampling(clip, moments))
        start, practice, support = jax.device_put((f, moments.practice, np.array(self.support)))
        F = LayeredValue.start(start, practice, support, len(self.rounds))
        carried = Carried.nothing(self.num_actions, phi.dim)
        for k in range(len(self.rounds)):
            errors = FeatureErrors(phi, self.num_actions, unit, self._rewarding, F, self.trace, self.rules)
            b, noise, clip = self._asked(ask, "round", errors, most * size, f"-{k + 1}")
            found, carried = advantages(moments, b, noise, self._sampling(clip, moments), carried)
            kappa = self.anchor * found.deviation
            F = F.with_layer(k, found.change, found.by_action, kappa)
        theta, anchor, values = jax.device_put((found.by_action, np.array(kappa), standard_values(moments, f)))
        last = (phi.centre, phi.half_width, theta, practice, anchor, support)
        return Solution(MeasuredPolicy(self.columns, self.products, *last, self.rules), values)

    def _features(self, ask: Ask) -> QuadraticFeatures:
        shares = ColumnShares(self.columns)
        if not any(isinstance(column, Feature) for column in self.columns):
            return QuadraticFeatures.unscaled(self.columns, self.products)
        found = standardise_columns(np.asarray(ask("columns", shares).value), shares.edges)
        centre, half_width = jax.device_put(found)
        return QuadraticFeatures(self.columns, centre, half_width, self.products)

    def _asked(
        self, ask: Ask, name: str, statistic: AbstractPersonSum, largest: float, number: str = ""
    ) -> tuple[Float[np.ndarray, "..."], float, ClipLevel]:
        """A sum clipped at a quantile of its norms, and its noise, both divided by what clipping has left of it."""
        norms = PersonNorms(statistic, _RANGE * largest, largest)
        histogram = ask(f"{name}-norms{number}", norms)
        clip = clip_level(histogram, norms.edges, _QUANTILES[name])
        release, kept = ask(f"{name}{number}", eqx.tree_at(lambda s: s.level, statistic, clip.level)), float(clip.kept)
        return np.asarray(release.value) / kept, float(np.asarray(release.noise.std).max()) / kept, clip

    def _sampling(self, clip: ClipLevel, moments: Moments) -> float:
        """v: the sampling variance of a sum per unit of |phi|^2."""
        return _SAMPLING * float(clip.level) ** 2 * float(clip.people) / moments.trace


def standardise_columns(
    histograms: Float[Array | np.ndarray, "F bins"], edges: Float[Array | np.ndarray, " edges"]
) -> tuple[Float[np.ndarray, " F"], Float[np.ndarray, " F"]]:
    """The centre c and half-width s of each measurement, from noisy histograms; in NumPy, so nothing is compiled.

    c is the median, and s = (q90 - q10)/2, at least 1.5 bins; 0 and 1 where nothing was seen.

    The last entry of a histogram, the share of missing values, is not used. Sums up to each edge are made monotone by
    the mean of their running maximum from below and their running minimum from above.
    """
    at = np.asarray(edges)
    found = [_centre_and_width(np.asarray(shares), at) for shares in np.asarray(histograms)]
    centres, half_widths = zip(*found, strict=True)
    return np.array(centres), np.array(half_widths)


def _centre_and_width(shares: Float[np.ndarray, " bins"], edges: Float[np.ndarray, " edges"]) -> tuple[float, float]:
    total = np.append(0.0, np.cumsum(shares[:-1]))
    if not total[-1] > 0:
        return 0.0, 1.0
    rising = np.maximum.accumulate(total) + np.minimum.accumulate(total[::-1])[::-1]
    level = (rising - rising[0]) / max(rising[-1] - rising[0], 1e-12)
    low, middle, high = np.interp([0.1, 0.5, 0.9], level, edges)
    return float(middle), float(max((high - low) / 2, 0.75 * (edges[1] - edges[0])))
