"""FQI: fitted Q iteration by gradient steps on whole episodes (what DP-SGD is to supervised learning).

Fitted Q iteration is due to Ernst, Geurts and Wehenkel 2005; the clipped gradients are what practitioners would add.

    Q = 0
    for k = 1, ..., steps:
        y(r, s') = r + discount max_a' Q(s', a'),  0 after the end          (targets, held fixed in the gradient)
        g        = sum over episodes of clip_C( gradient of  1/2 sum_h (Q(s_h,a_h) - y(r_h,s_{h+1}))^2 )   (a release)
        Q        = Q - learning_rate g / (sampling N)
    Q = mean of the last quarter of the iterates;  pi = argmax_a Q

One Q[s, a] serves all steps. The clipped unit is the episode, hence the person: with single transitions as samples the
same claimed epsilon would protect one step of a stay, and a stay has up to H of them.

N, the number of episodes, scales the step. It is public where a person may be replaced but not added; give it as
`num_episodes`, or it is counted with a small share of the budget, which suits both relations.

There is no anchor to practice here (`learners/tabular/anchor.py`): that needs P(a|s), and nothing that is released says
how often an action is taken. A gradient is a sum of clipped TD errors: a pair that is often taken has a small one if Q
is right there, and a pair that is never taken has none; a difference of two gradients is n(s, a) times a known change
of Q, plus changes of targets, through a clipping that depends on the stay. Visits would be one more release.
"""

import equinox as eqx

from privrl.contracts.learner import Ask, Solution
from privrl.learners.gradient.approximators import TabularQ
from privrl.learners.gradient.episode_gradients import AbstractEpisodeGradients


class FQI(AbstractEpisodeGradients):
    """Fitted Q iteration with one clipped gradient per episode, in full batches or on Poisson samples.

    >>> world = privrl.envs.make("riverswim", states=3, horizon=4)
    >>> learner = privrl.FQI(3, 2, 4, steps=3)
    >>> privrl.fit(world, learner, privrl.Central(epsilon=1, delta=1e-6), episodes=200, key=0)
    Result(released without evidence, TabularPolicy, FQI, central privacy, epsilon 1, delta 1e-06, simulated noise)

    Arguments:
        num_states, num_actions, horizon: the size of the world, public.
        terminal: public states after which nothing comes. Left out, their Q is learnt like any other: it stays near 0.
        discount: of the next value.
        clip: C, the L2 norm to which the gradient of one whole episode is clipped.
        steps: gradient steps, each of which is a release.
        learning_rate: on the mean gradient. By default SA/(9H): an average pair is taken less than H/(SA) times per
            episode, so Q moves by at most 1/9 of its error there (99 in ICU-Sepsis).
        sampling: each step sees each episode with this probability (1: all episodes).
        num_episodes: the public number of episodes; counted and paid for if left out.

    Raises:
        ValueError: a setting is out of its range.
    """

    num_states: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    terminal: tuple[int, ...] = eqx.field(static=True, default=())
    discount: float = eqx.field(static=True, default=0.95)
    clip: float = eqx.field(static=True, default=0.3)
    steps: int = eqx.field(static=True, default=20)
    learning_rate: float | None = eqx.field(static=True, default=None)
    sampling: float = eqx.field(static=True, default=1.0)
    num_episodes: int | None = eqx.field(static=True, default=None)

    @property
    def space(self) -> tuple[int, int]:
        return self.num_states, self.num_actions

    def fit(self, ask: Ask) -> Solution:
        S, A = self.space
        rate = S * A / (9 * self.horizon) if self.learning_rate is None else self.learning_rate
        step_size = rate / self.expected_batch(ask)
        return Solution(self.descended(ask, TabularQ(S, A), lambda k, total: step_size * total))
