"""Minari datasets and Gymnasium environments: discrete actions, numbered or measured observations; episodes out."""

import builtins
import gc
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, Text

import privrl
from privrl.data.schema.table_schema import TableError
from privrl.data.sources.observed_episodes import from_gymnasium, from_minari
from privrl.mdp.measurements import ENDED, Feature
from privrl.recipes.all_recipes import get
from privrl.recipes.recipe import MeasuredProblem

VECTORS = np.array([[0.1, 1.0], [0.2, 2.0], [0.3, 9.0]])
UNIT = Box(np.array([0.0, 0.0]), np.array([1.0, 5.0]), dtype=np.float64)
SIZES: dict[str, Any] = {"horizon": 4, "num_states": 5, "num_actions": 3}


@dataclass
class FakeEpisode:
    observations: Any
    actions: Any
    rewards: Any


@dataclass
class FakeDataset:
    """As much of a `MinariDataset` as is used."""

    episodes: list[FakeEpisode]
    observation_space: Any = field(default_factory=lambda: Discrete(5))
    action_space: Any = field(default_factory=lambda: Discrete(3))

    @property
    def total_episodes(self) -> int:
        return len(self.episodes)

    def iterate_episodes(self) -> Any:
        return iter(self.episodes)


def two_episodes(shift: int = 0) -> list[FakeEpisode]:
    return [
        FakeEpisode(np.array([0, 1, 2]) + shift, np.array([0, 1]), np.array([0.0, 1.0])),
        FakeEpisode(np.array([[3], [4], [4], [0]]) + shift, np.array([2, 2, 0]), np.array([0.5, 0.0, 0.25])),
    ]


def check_two(data: Any) -> None:
    assert (data.num_units, data.num_episodes) == (2, 2)
    (batch,) = data.batches(2)
    np.testing.assert_array_equal(batch.length, [2, 3])
    np.testing.assert_array_equal(batch.states, [[0, 1, 0, 0], [3, 4, 4, 0]])
    np.testing.assert_array_equal(batch.next_states, [[1, 2, -1, -1], [4, 4, 0, -1]])
    np.testing.assert_array_equal(batch.actions, [[0, 1, 0, 0], [2, 2, 0, 0]])
    np.testing.assert_array_equal(batch.rewards, [[0.0, 1.0, 0.0, 0.0], [0.5, 0.0, 0.25, 0.0]])


def test_episodes_with_known_next_states() -> None:
    check_two(from_minari(FakeDataset(two_episodes()), **SIZES))


def test_a_space_may_start_elsewhere() -> None:
    check_two(from_minari(FakeDataset(two_episodes(shift=10), Discrete(5, start=10)), **SIZES))


def test_owners_share_a_bound() -> None:
    data = from_minari(FakeDataset(two_episodes()), units=["me", "me"], **SIZES)
    assert (data.num_units, data.num_episodes) == (1, 1)


def on_disk(name: str, episodes: list[FakeEpisode], observation_space: Any, action_space: Any) -> None:
    """Writes a dataset as Minari does."""
    minari = pytest.importorskip("minari")
    from minari.data_collector import EpisodeBuffer

    buffers = [
        EpisodeBuffer(
            id=k,
            observations=episode.observations,
            actions=list(episode.actions),
            rewards=list(episode.rewards),
            terminations=[False] * (len(episode.rewards) - 1) + [True],
            truncations=[False] * len(episode.rewards),
        )
        for k, episode in enumerate(episodes)
    ]
    spaces = {"observation_space": observation_space, "action_space": action_space}
    about = {"algorithm_name": "none", "author": "nobody", "author_email": "none", "code_permalink": "none"}
    about["description"] = "two episodes"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it would like scores and an environment too
        minari.create_dataset_from_buffers(name, buffers, data_format="arrow", **spaces, **about)


def test_a_dataset_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    numbered = [FakeEpisode(e.observations.reshape(-1).tolist(), e.actions, e.rewards) for e in two_episodes()]
    on_disk("small/two-v0", numbered, Discrete(5), Discrete(3))
    check_two(from_minari("small/two-v0", **SIZES))
    on_disk("small/box-v0", [FakeEpisode(VECTORS, [0, 1], [0.0, 1.0])], UNIT, Discrete(2))
    data = from_minari("small/box-v0", horizon=2, num_actions=2)
    (batch,) = data.batches(1)
    np.testing.assert_allclose(batch.states[0], VECTORS[:2])
    assert (batch.next_states[0, 1] == ENDED).all()


@pytest.mark.parametrize(
    ("dataset", "sizes", "words"),
    [
        (FakeDataset(two_episodes(), observation_space=Text(3)), {}, "dataset is `Text`; .* or `Box`"),
        (FakeDataset(two_episodes(), action_space=Box(0, 1, (2,))), {}, "action space of the dataset is `Box`"),
        (FakeDataset(two_episodes()), {"horizon": 2}, "Episode 1 is longer than the horizon"),
        (FakeDataset(two_episodes()), {"num_states": 4}, "`states` is out of range at episode 1, step 1"),
        (FakeDataset(two_episodes()), {"reward_range": (0.0, 0.5)}, "`rewards` is out of range at episode 0, step 1"),
        (FakeDataset([FakeEpisode([0, 1], [0, 1], [0.0, 1.0])]), {}, "`observations` of episode 0 do not fit"),
    ],
)
def test_what_is_refused(dataset: FakeDataset, sizes: dict[str, Any], words: str) -> None:
    with pytest.raises(TableError, match=words):
        from_minari(dataset, **{**SIZES, **sizes})


@pytest.mark.parametrize("changed", ["observations", "actions"])
def test_an_episode_that_does_not_fit_is_refused_without_its_length(changed: str) -> None:
    def message(length: int) -> str:
        parts = {"observations": [0] * (length + 1), "actions": [0] * length, "rewards": [0.0] * length}
        parts[changed] = parts[changed][:-1]
        with pytest.raises(TableError) as caught:
            from_minari(FakeDataset([FakeEpisode(**parts)]), **SIZES | {"horizon": 99})
        return str(caught.value)

    assert message(17) == message(71) and f"`{changed}` of episode 0" in message(17)


def test_without_minari_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "minari":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"privrl\[minari\]"):
        from_minari("small/two-v0", **SIZES)


@dataclass
class EndingEpisode(FakeEpisode):
    terminations: Any = (False, True)


def test_observations_of_a_box_are_measurements() -> None:
    episodes = [FakeEpisode(VECTORS, [0, 1], [0.0, 1.0]), EndingEpisode(VECTORS, [1, 1], [0.0, 1.0])]
    data = from_minari(FakeDataset(episodes, UNIT, Discrete(2)), horizon=3, num_actions=2)
    assert data.features == (Feature("x0", 0, 1), Feature("x1", 0, 5))
    (batch,) = data.batches(2)
    np.testing.assert_allclose(batch.states[0, :2], VECTORS[:2])
    np.testing.assert_allclose(batch.next_states[0, :2], [[0.2, 2.0], [0.3, 5.0]])  # moved to the bound
    assert (batch.next_states[1, 1] == ENDED).all() and (batch.next_states[1, 0] == batch.next_states[0, 0]).all()


@pytest.mark.parametrize(
    ("space", "episode", "features", "words"),
    [
        (Box(-np.inf, 1, (2,)), VECTORS, (), "Entries 0, 1 of the observation space have no finite bounds"),
        (UNIT, VECTORS, (Feature("x", 0, 1),), r"declares 1 columns, but an observation has shape \[2\]"),
        (UNIT, VECTORS[:, :1], (), r"`observations` of episode 0 do not fit .* must be of shape \[2\]"),
    ],
)
def test_vectors_that_are_refused(space: Any, episode: Any, features: Any, words: str) -> None:
    dataset = FakeDataset([FakeEpisode(episode, [0, 1], [0.0, 1.0])], space, Discrete(2))
    with pytest.raises(TableError, match=words):
        from_minari(dataset, horizon=3, num_actions=2, features=features)


POLE = [
    Feature(name, -high, high) for name, high in (("position", 4.8), ("speed", 3.0), ("angle", 0.42), ("turning", 3.5))
]


def test_episodes_are_played_in_gymnasium() -> None:
    env = gymnasium.make("CartPole-v1")
    data = from_gymnasium(env, episodes=20, horizon=15, env_seed=1, num_actions=2, features=POLE)
    (batch,) = data.batches(20)
    last = np.arange(20), batch.length - 1
    ended = (batch.next_states[last] == ENDED).all(axis=1)
    assert data.num_units == 20 and ended.any() and not ended.all()
    assert (batch.length[~ended] == 15).all() and set(np.unique(batch.actions)) == {0, 1}
    again = from_gymnasium(env, episodes=20, horizon=15, env_seed=1, num_actions=2, features=POLE)
    np.testing.assert_array_equal(next(again.batches(20)).states, batch.states)
    left = from_gymnasium(
        env, lambda seen: int(seen[2] > 0), episodes=3, horizon=9, env_seed=1, num_actions=2, features=POLE
    )
    assert left.num_episodes == 3


def test_numbered_observations_are_played_too() -> None:
    env = gymnasium.make("FrozenLake-v1")
    data = from_gymnasium(env, episodes=5, horizon=8, env_seed=0)
    assert data.num_units == 5 and next(data.batches(5)).states.max() < 16
    assert (data.num_states, data.num_actions) == (16, 4)
    fewer = from_gymnasium(env, episodes=5, horizon=8, env_seed=0, num_states=17)
    assert (fewer.num_states, fewer.num_actions) == (17, 4)


def test_what_minari_collects_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataset that Minari's own collector writes while an environment is played."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    minari = pytest.importorskip("minari")
    env = minari.DataCollector(gymnasium.make("FrozenLake-v1"), data_format="arrow")
    lengths = []
    for k in range(4):
        env.reset(seed=k)
        env.action_space.seed(k)
        ended, steps = False, 0
        while not ended:
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            ended, steps = terminated or truncated, steps + 1
        lengths.append(steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it would like an author and a permalink too
        env.create_dataset("lake/random-v0")
        del env
        gc.collect()  # it leaves a temporary folder to the interpreter
    data = from_minari("lake/random-v0", horizon=max(lengths))
    assert (data.num_states, data.num_actions) == (16, 4)
    assert [int(batch.length[0]) for batch in data.batches(1)] == lengths


@pytest.mark.slow
def test_a_pole_is_balanced_by_what_was_learnt_from_minari(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env, rng = gymnasium.make("CartPole-v1"), np.random.default_rng(0)

    def practice(seen: Any) -> int:
        return int(rng.integers(2)) if rng.random() < 0.6 else int(seen[2] + 0.1 * seen[3] > 0)

    def steps(policy: Any) -> float:
        played = from_gymnasium(env, policy, episodes=20, horizon=100, env_seed=9, num_actions=2, features=POLE)
        return float(next(played.batches(20)).length.mean())

    played = from_gymnasium(env, practice, episodes=500, horizon=60, env_seed=0, num_actions=2, features=POLE)
    batch = next(played.batches(500))
    episodes = [
        FakeEpisode(np.concatenate([x[:T], x[T - 1 : T]]), a[:T].astype(np.int64), r[:T])
        for x, a, r, T in zip(batch.states, batch.actions, batch.rewards, batch.length, strict=True)
    ]
    limits = np.array([feature.high for feature in POLE])
    on_disk("pole/practice-v0", episodes, Box(-limits, limits, dtype=np.float64), Discrete(2))
    data = from_minari("pole/practice-v0", horizon=60, num_actions=2)
    recipe = get("dp-lap")
    learner = recipe.learner(MeasuredProblem(data.features, 2, 60))
    result = privrl.fit(data, learner, recipe.privatizer(epsilon=10.0, delta=1e-6), key=jax.random.key(1))
    assert steps(practice) < 85 and steps(result.policy) > 90
