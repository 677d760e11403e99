"""The loop of an online study: plan, let people act, sum what they leave behind, release, plan again.

It is written here once. A simulation (`simulation.py`) compiles it, an agent (`live_plans.py`) and a server
(`local_plans.py`) go through it block by block, and the audit listens to it. They differ in who acts, and in the
arithmetic of the channels: floating point with seeded noise, or whole numbers with exact noise that a store keeps.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import jax
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from privrl.contracts.learner import AbstractOnlineLearner, OnlineAsk, Plan, Releases
from privrl.contracts.release import Release
from privrl.privacy.trust.channels import AbstractChannel, Number, RoundsChannel
from privrl.privacy.trust.privatizers import PairingError

T = TypeVar("T")
Noise = Callable[[str], Callable[..., Any]]
"""For a statistic's name, the new noise of this block, as its channel's arithmetic takes it."""
Listener = Callable[[str, int, Any, Release], None]
"""Hears every query: its name, index and query, and the release that answers it."""


class State(NamedTuple):
    """Where a study is between two blocks: the learner's memory, what each channel keeps, and the newest releases."""

    memory: Any
    kept: dict[str, Any]
    released: dict[str, Release]

    @classmethod
    def first(cls, learner: AbstractOnlineLearner, channels: Mapping[str, AbstractChannel]) -> "State":
        """Before anybody took part."""
        kept = {name: channel.init() for name, channel in channels.items()}
        empty = {name: release for name, channel in channels.items() if (release := channel.empty()) is not None}
        return cls(learner.init(), kept, empty)


class Queries:
    """What a plan may query: new releases about all people so far, each with its own noise.

    Arguments:
        channels, kept: of all statistics; only those of `access="rounds"` answer.
        noise: new white noise for each release.
        listen: is told every query. Then `scan` is a loop in Python, whose queries can be told apart.

    `counts` says how many releases a plan has made; it is right inside `jit` too.
    """

    def __init__(
        self,
        channels: Mapping[str, AbstractChannel],
        kept: Mapping[str, Any],
        noise: Noise,
        listen: Listener | None = None,
    ) -> None:
        self._channels, self._kept, self._noise, self._listen = channels, kept, noise, listen
        self._asked: dict[str, set[object]] = {}
        self._step: Array | None = None  # the index of a compiled scan, and
        self._length = 1  # how often its body is run
        self.counts = {name: 0 for name, channel in channels.items() if isinstance(channel, RoundsChannel)}

    def __call__(self, name: str, index: object, query: object) -> Release:
        channel = self._channels.get(name)
        if not isinstance(channel, RoundsChannel):
            raise PairingError(f"`{name}` was not declared with `access='rounds'`, so it cannot be asked for.")
        asked = self._asked.setdefault(name, set())
        scanned = self._step is not None
        fitting = index is self._step if scanned else type(index) is int
        if not fitting or (asked if scanned else index in asked or None in asked):  # a scan takes all indices of a name
            raise ValueError(
                f"`index` of a release of `{name}` must be a new Python integer in each plan, or the step inside one "
                "`scan`."
            )
        asked.add(None if scanned else index)
        self.counts[name] += self._length
        noise = self._noise(name)
        release = channel.ask(self._kept[name], query, lambda i: noise(index))
        if self._listen is not None:
            assert isinstance(index, int)
            self._listen(name, index, query, release)
        return release

    def scan(self, body: Callable[[PyTree, Number], PyTree], init: PyTree, length: int) -> PyTree:
        """`init = body(init, i)` for i = length-1, ..., 0, compiled once; a query in `body` has the index i."""
        # Accelerators start a program for every step of a compiled loop, which costs more than the step.
        plain = self._listen is not None or jax.config.jax_disable_jit  # type: ignore[attr-defined]
        if plain or length == 1 or jax.default_backend() != "cpu":
            for i in reversed(range(length)):
                init = body(init, i)
            return init

        def step(carry: PyTree, i: Int[Array, ""]) -> tuple[PyTree, None]:
            self._step, self._length = i, length
            try:
                return body(carry, i), None
            finally:
                self._step, self._length = None, 1

        return jax.lax.scan(step, init, jax.numpy.arange(length), reverse=True)[0]


def no_queries() -> Queries:
    """Refuses every query, because no raw data are kept that could answer it."""
    return Queries({}, {}, _no_noise)


def planned(
    learner: AbstractOnlineLearner,
    state: State,
    seen: Int[Array, ""],
    queries: Queries | None = None,
    *,
    key: PRNGKeyArray | None = None,
    ties: PRNGKeyArray | None = None,
) -> tuple[State, Plan]:
    """The plan for the next block, from what was released about the `seen` people so far.

    Arguments:
        queries: answers new queries; without it no raw data are kept that could answer them.
        key: public randomness for learners that plan at random.
        ties: if people answer with symbols, they are shown one deterministic policy, so that a report of states
            says which action was taken; this public key decides between equally good actions.
    """
    answers = no_queries() if queries is None else queries
    memory, made = next_plan(learner, state.memory, state.released, answers, seen, key=key)
    if ties is not None:
        made = Plan(made.policy.realise(ties), made.query)
    return state._replace(memory=memory), made


class _Released(dict[str, Release]):
    """The newest streamed releases by name; a name that is not streamed says how to get it."""

    def __missing__(self, name: str) -> Release:
        raise KeyError(
            f"`{name}` is not a streamed release. Declared with `access='rounds'` it is asked for: "
            f"`ask({name!r}, index, query)`; declare `access='running'` or `'blocks'` to find it in `released`."
        )


def next_plan(
    learner: AbstractOnlineLearner,
    memory: object,
    released: Releases,
    ask: OnlineAsk,
    num_seen: Int[Array, ""],
    *,
    key: PRNGKeyArray | None = None,
) -> tuple[object, Plan]:
    """`learner.plan`, with releases that explain themselves and a checked answer; `key` is for those who plan at
    random."""
    given: dict[str, object] = {}
    name = type(learner).__name__
    if learner.plans_at_random:
        if key is None:
            raise ValueError(f"`{name}` plans at random: give `key`, a public one for each plan.")
        given = {"key": key}
    answer = learner.plan(memory, _Released(released), ask, num_seen, **given)
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], Plan)):
        raise TypeError(f"`{name}.plan` must return `(memory, Plan(policy, query))`.")
    return answer


def publish(
    channels: Mapping[str, AbstractChannel], state: State, totals: Mapping[str, Any], t: Number, noise: Noise
) -> State:
    """The releases at the end of block `t`, whose people left these sums behind."""
    kept, released = dict(state.kept), dict(state.released)
    for name, channel in channels.items():
        kept[name], release = channel.publish(kept[name], totals[name], t, noise(name))
        if release is not None:
            released[name] = release
    return State(state.memory, kept, released)


def strongly_typed(tree: T) -> T:
    """The same arrays with strong types. A program is compiled again for an array of a weak type, and people who
    arrive would wait for that.
    """

    def strong(leaf: Any) -> Any:
        return jax.lax.convert_element_type(leaf, leaf.dtype) if getattr(leaf, "weak_type", False) else leaf

    return jax.tree.map(strong, tree)


def _no_noise(name: str) -> Any:
    raise PairingError(f"No noise is drawn for `{name}` here.")
