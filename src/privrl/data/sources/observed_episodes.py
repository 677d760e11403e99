"""Episodes from Gymnasium environments and Minari datasets: T actions and T + 1 observations each, in arrays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np
from jaxtyping import Int, Shaped

from privrl.data.episodes import Episodes, Public
from privrl.data.schema.columns import to_whole_numbers
from privrl.data.schema.guard import redact_errors
from privrl.data.schema.table_schema import TableError
from privrl.mdp.measurements import ENDED, Feature, Measurement, check_measurements

if TYPE_CHECKING:
    import gymnasium
    import minari


@dataclass(frozen=True, repr=False)
class Recorder:
    """Arrays to be filled, and the public facts about them. Spaces are recognised by their attributes, so `gymnasium`
    need not be installed."""

    states: Shaped[np.ndarray, "N H1 *D"]
    actions: Int[np.ndarray, "N H"]
    rewards: Shaped[np.ndarray, "N H"]
    lengths: Int[np.ndarray, " N"]
    ended: Shaped[np.ndarray, " N"]
    first: tuple[int, int]
    public: Public

    @classmethod
    def from_spaces(cls, source: Any, what: str, count: int, horizon: int, public: Public) -> "Recorder":
        """Allocate arrays for `count` episodes of a dataset or an environment with an `observation_space` and an
        `action_space`. The sizes of discrete spaces are the public numbers of states and actions unless `public` gives
        others."""
        first_action = _first_action(source.action_space, what)
        public = cast(Public, {"num_actions": int(source.action_space.n), **public})
        first_state, states = 0, np.zeros((count, horizon + 1), np.int64)
        if _discrete(source.observation_space):
            first_state = int(source.observation_space.start)
            public = cast(Public, {"num_states": int(source.observation_space.n), **public})
        else:
            features = _columns_of(source.observation_space, public.get("features", ()), what)
            public = cast(Public, {**public, "features": features})
            states = np.zeros((*states.shape, len(features)), np.float64)
        actions, rewards = np.zeros((count, horizon), np.int64), np.zeros((count, horizon))
        lengths, ended = np.zeros(count, np.int64), np.zeros(count, bool)
        return cls(states, actions, rewards, lengths, ended, (first_state, first_action), public)

    def add(self, k: int, observations: object, actions: object, rewards: object, ended: bool) -> None:
        """Store episode k."""
        with redact_errors(f"Episode {k} has rewards that are not numbers"):
            paid = np.asarray(rewards, float).reshape(-1)
        T, horizon = len(paid), self.actions.shape[1]
        if horizon < T:
            raise TableError(
                f"Episode {k} is longer than the horizon, {horizon}. Give a larger `horizon` or filter the dataset."
            )
        entry = self.states.shape[2:]
        seen = _shaped(observations, (T + 1, *entry), "observations", k)
        if entry:
            with redact_errors(f"Episode {k} has observations that are not numbers"):
                self.states[k, : T + 1] = seen.astype(float)
        else:
            self.states[k, : T + 1] = _whole(seen, "observations", k) - self.first[0]
        self.actions[k, :T] = _whole(_shaped(actions, (T,), "actions", k), "actions", k) - self.first[1]
        self.rewards[k, :T], self.lengths[k], self.ended[k] = paid, T, ended

    def episodes(self) -> Episodes:
        """All episodes, checked."""
        after = self.states[:, 1:].copy()
        if after.ndim > 2:
            over = np.flatnonzero(self.ended & (self.lengths > 0))
            after[over, self.lengths[over] - 1] = ENDED
        horizon = self.actions.shape[1]
        arrays = (self.states[:, :-1], self.actions, self.rewards, after, self.lengths)
        return Episodes.from_arrays(*arrays, horizon=horizon, **self.public)


def _discrete(space: object) -> bool:
    return isinstance(getattr(space, "n", None), int | np.integer) and hasattr(space, "start")


def _first_action(space: Any, what: str) -> int:
    """The smallest action."""
    if not _discrete(space):
        raise TableError(
            f"The action space of the {what} is `{type(space).__name__}`; it must be `Discrete`. Number its elements "
            f"0, 1, ... and use `privrl.data.Episodes.from_arrays`."
        )
    return int(space.start)


def _columns_of(space: Any, features: Sequence[Measurement], what: str) -> tuple[Measurement, ...]:
    """The declared columns, one per entry of an observation; by default, the bounds of the space."""
    if not all(hasattr(space, name) for name in ("low", "high", "shape")):
        raise TableError(
            f"The observation space of the {what} is `{type(space).__name__}`; it must be `Discrete` or `Box`. Turn "
            "the observations into vectors and use `privrl.data.Episodes.from_arrays`."
        )
    low, high = (np.asarray(bound, float).reshape(-1) for bound in (space.low, space.high))
    if features:
        given = check_measurements(features)
        if len(given) != len(low):
            raise TableError(
                f"`features` declares {len(given)} columns, but an observation has shape {list(space.shape)}, that is "
                f"{len(low)} entries. Declare one column per entry."
            )
        return given
    endless = np.flatnonzero(~(np.isfinite(low) & np.isfinite(high) & np.isfinite(high - low) & (low < high)))
    if len(endless):
        raise TableError(
            f"Entries {', '.join(map(str, endless))} of the observation space have no finite bounds, and privrl never "
            'reads bounds off the data. Declare all entries: `features=[Feature("position", -4.8, 4.8), ...]`.'
        )
    return tuple(Feature(f"x{j}", float(a), float(b)) for j, (a, b) in enumerate(zip(low, high, strict=True)))


def _shaped(values: object, shape: tuple[int, ...], name: str, k: int) -> np.ndarray:
    """One entry per step; some writers store a number as an array of one."""
    with redact_errors(f"The `{name}` of episode {k} cannot be converted to an array", "Collect the episodes again."):
        array = np.asarray(values)
    if array.size != np.prod(shape):
        # The message leaves out the shapes of the arrays, which reveal the length of a person's episode.
        entry = f"of shape {list(shape[1:])}" if shape[1:] else "a number each"
        raise TableError(
            f"The `{name}` of episode {k} do not fit its `rewards`: T rewards require T actions and T + 1 "
            f"observations, and `{name}` must be {entry}. Collect the dataset again."
        )
    return array.reshape(shape)


def _whole(values: np.ndarray, name: str, k: int) -> Int[np.ndarray, " T"]:
    return to_whole_numbers(values, name, lambda i: f"episode {k}, step {i}")


def from_gymnasium(
    env: "gymnasium.Env",
    policy: Callable[..., object] | None = None,
    *,
    episodes: int,
    horizon: int,
    env_seed: int,
    **public: Unpack[Public],
) -> Episodes:
    """Play a policy in a Gymnasium environment; every episode belongs to a different person.

    Arguments:
        env: an environment with discrete actions, and observations that are discrete or a `Box`.
        policy: maps an observation to an action. By default, actions are uniformly random.
        episodes: the number of people to simulate.
        horizon: the largest number of steps; an episode that the environment ends is shorter.
        env_seed: the seed of the environment and of the random actions.
        **public: the other arguments of `Episodes.from_arrays`. Observations of a `Box` are vectors of measurements:
            declare `features`, or leave them out if all bounds of the space are finite, which then are the public
            bounds. Discrete spaces supply `num_states` and `num_actions`. Rewards must lie in `reward_range`, by
            default [0, 1].
    """
    recorder = Recorder.from_spaces(env, "environment", episodes, horizon, public)
    rng = np.random.default_rng(env_seed)
    actions: Any = env.action_space
    first, count = int(actions.start), int(actions.n)
    for k in range(episodes):
        observation, _ = env.reset(seed=env_seed if k == 0 else None)
        seen, ended = [observation], False
        done: list[object] = []
        paid: list[object] = []
        while len(done) < horizon and not ended:
            action = int(rng.integers(count)) + first if policy is None else policy(observation)
            observation, reward, ended, truncated, _ = env.step(action)
            seen.append(observation)
            done.append(action)
            paid.append(reward)
            if truncated:
                break
        recorder.add(k, seen, done, paid, bool(ended))
    return recorder.episodes()


def from_minari(dataset: "str | minari.MinariDataset", *, horizon: int, **public: Unpack[Public]) -> Episodes:
    """Read the episodes of a Minari dataset, given by its name or as an opened `MinariDataset`.

    An episode of T actions has T + 1 observations, so all next states are known. Discrete spaces that start at another
    number than 0 are shifted to it, and supply `num_states` and `num_actions`. Observations of a `Box` are vectors of
    measurements: declare `features`, or leave them out if all bounds of the space are finite, which then are the public
    bounds.

    Arguments:
        dataset: the dataset or its name.
        horizon: the largest number of steps of an episode.
        **public: the other arguments of `Episodes.from_arrays`. Without `units`, every episode belongs to a different
            person.

    Raises:
        ImportError: if a name is given and the package `minari` is not installed.
        TableError: if an episode is too long or a space is not supported.
    """
    if isinstance(dataset, str):
        dataset = _loaded(dataset)
    recorder = Recorder.from_spaces(dataset, "dataset", int(dataset.total_episodes), horizon, public)
    for k, episode in enumerate(dataset.iterate_episodes()):
        ended = np.asarray(getattr(episode, "terminations", False)).reshape(-1)
        recorder.add(k, episode.observations, episode.actions, episode.rewards, bool(ended.size and ended[-1]))
    return recorder.episodes()


def _loaded(name: str) -> Any:
    try:
        import minari
    except ImportError:
        raise ImportError(
            f"Reading the Minari dataset `{name}` requires the package `minari`. Install `privrl[minari]`, or use "
            f"`privrl.data.Episodes.from_arrays`."
        ) from None
    return minari.load_dataset(name)
