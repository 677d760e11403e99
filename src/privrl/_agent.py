"""`Agent` and `Controller`: online learners at work with real people, safe across crashes.

People take part one after another under a published plan. What each contributes is added, exactly, to the sums of the
current block in a `ReleaseStore`; at the public end of a block the noisy sums are released, once, and the agent plans
again. Everything the agent knows is in the store: a new process that opens it goes on where the last one stopped.
"""

import abc
import contextlib
import secrets
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from privrl._result import Result
from privrl._run import SimulationKeys
from privrl.learners import AbstractOnlineLearner, Plan
from privrl.mdp import LQTrajectory, Trajectory, action_coin, draw_action, explorations
from privrl.privacy import (
    AbstractPrivatizer,
    BurntError,
    Central,
    Certificate,
    ExactStream,
    PairingError,
    Release,
    ReleaseStore,
    Seeded,
    Stream,
    StreamFullError,
    System,
)


class AbstractAgent(abc.ABC):
    """Learns from people as they leave, and never overspends.

    Arguments:
        learner: an online learner that publishes sums of what people leave behind, such as `LSVIUCB`.
        privatizer: `Central(...)`; read through the billboard lemma this is joint differential privacy.
        num_users: the public number of people K, fixed in advance: it sets the schedule and the noise. Further people
            are refused.
        store: where contributions and releases are kept.
        key: seeded noise and actions for tests and simulations, the same as those of `run` for a seed of this key.
            Leave it out on real people.

    **Formal guarantee.** A person (an id) is counted once, whatever is sent again. Every release is drawn once and kept
    before it is used. The sequence of all releases is (epsilon, delta)-differentially private; what other people are
    shown, and all that is published, depends on a person only through it. A person's own actions are not covered.
    """

    def __init__(
        self,
        learner: AbstractOnlineLearner,
        privatizer: AbstractPrivatizer,
        *,
        num_users: int,
        store: ReleaseStore,
        key: PRNGKeyArray | None = None,
    ) -> None:
        self._learner, self._privatizer, self._store, self._key = learner, privatizer, store, key
        self._num_users = num_users
        self._ends = learner.blocks(num_users)
        name = type(learner).__name__
        if not isinstance(privatizer, Central) or privatizer.budget is None:
            raise PairingError("`Agent` needs `Central(...)` with a finite budget: it works with real people.")
        declared = learner.declare(len(self._ends))
        privatizer.check(name, declared)
        self._ledger = privatizer.calibrate(declared)
        channels = {d.name: privatizer.channel(d, self._ledger) for d in declared}
        asked = [d.name for d in declared if d.access == "rounds"]
        if asked:
            raise PairingError(
                f"`{name}` asks new questions about people who have left ({', '.join(asked)}), and `Agent` keeps sums "
                "only. Use a learner that publishes running sums, such as `LSVIUCB`."
            )
        self._released = {n: release for n, channel in channels.items() if (release := channel.empty()) is not None}
        self._memory, self._plan = self._planned(learner.init(), 0)
        self._streams = {
            d.name: ExactStream(
                channels[d.name],
                len(self._ends),
                self._ledger.parameter(d.name),
                privatizer.adjacency,
                self._blank(),
                self._plan,
            )
            for d in declared
        }
        study = {
            "verb": "agent",
            "learner": name,
            "bounds": {key: str(value) for key, value in learner.bounds().items()},
            "events": [event.to_json() for event in self._ledger.events()],
            "adjacency": privatizer.adjacency,
            "users": num_users,
            "simulation": key is not None,
        }
        store.open_study(study, {f"releases of {n}": float(len(self._ends)) for n in self._streams})
        for n, stream in self._streams.items():
            if store.fact(f"lattice of {n}", stream.fingerprint) != stream.fingerprint():
                raise ValueError(
                    f"This computer rounds the public numbers of `{n}` otherwise than the one that began this store, "
                    "so sums cannot be continued here. Nothing was counted. Go on where the study began."
                )
        self._noisy: dict[str, list[np.ndarray]] = {n: [] for n in self._streams}
        self._block = 0
        self._catch_up()

    @property
    def num_seen(self) -> int:
        """How many people have been counted."""
        return self._begin + (self._store.count(self._stream) if self._block < len(self._ends) else 0)

    @property
    def policy(self) -> Any:
        """The published policy of the current block."""
        return self._plan.policy

    @abc.abstractmethod
    def _blank(self) -> Any:
        """What a record looks like."""

    def end_episode(self, trajectory: Any, user: str | None = None) -> bool:
        """Counts one person, once: `False` if `user` was counted before. Safe to call again after a crash.

        Arguments:
            trajectory: what happened, padded to the horizon.
            user: an id of the person; without one, every call is a new person.
        """
        return self.end_episodes([trajectory], None if user is None else [user])[0]

    def end_episodes(self, trajectories: Sequence[Any], users: Sequence[str] | None = None) -> list[bool]:
        """Counts several people in one transaction per block; which of them were new."""
        names = [secrets.token_hex(16) for _ in trajectories] if users is None else list(users)
        if len(names) != len(trajectories):
            raise ValueError(f"`users` has {len(names)} ids and there are {len(trajectories)} trajectories.")
        new: list[bool] = []
        while len(new) < len(names):
            if self.num_seen >= self._num_users:
                raise PairingError(
                    f"All {self._num_users} users have taken part; the budget is spent on them. "
                    f"{len(names) - len(new)} were not counted. A new study needs a new budget, and new people."
                )
            room = int(self._ends[self._block]) - self.num_seen
            some = slice(len(new), len(new) + room)
            units = np.stack([self._units(trajectory) for trajectory in trajectories[some]])
            at_most = int(self._ends[self._block]) - self._begin
            with contextlib.suppress(StreamFullError):  # another process has filled the block meanwhile
                counted = self._store.contribute(self._stream, names[some], units, scope="people", at_most=at_most)
                new += [bool(n) for n in counted]
            self._catch_up()
        return new

    @property
    def certificate(self) -> Certificate:
        """What everything released so far, and until the end, can reveal."""
        self._ledger.reconcile(dict.fromkeys(self._streams, self._block))
        return self._privatizer.certificate(
            self._ledger,
            learner=type(self._learner).__name__,
            unit="user",
            bounds={**self._learner.bounds(), "episodes per unit": 1},
            noise_source=System.description if self._key is None else Seeded.description,
            notion="joint",
            notes=self._store.notes(),
        )

    def result(self) -> Result:
        """The current policy and the certificate."""
        return Result(self.policy, self.certificate, {"users": self.num_seen, "episodes": self.num_seen})

    @property
    def _begin(self) -> int:
        """How many people took part before the current block."""
        return int(self._ends[self._block - 1]) if self._block else 0

    @property
    def _stream(self) -> str:
        return f"block {self._block}"

    def _units(self, trajectory: Any) -> np.ndarray:
        """One person's terms of all statistics, end to end."""
        return np.concatenate([stream.units(trajectory, self._plan).ravel() for stream in self._streams.values()])

    def _blocks(self, name: str, count: int) -> np.ndarray:
        """The exact sums of the first blocks, of one statistic."""
        shapes = {n: stream.statistic.raw_shape for n, stream in self._streams.items()}
        ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes.values()])
        at = list(shapes).index(name)
        begin = 0 if at == 0 else ends[at - 1]
        totals = []
        for t in range(count):
            total = self._store.total(f"block {t}")
            assert total is not None  # a block is released when it is full
            totals.append(total[begin : ends[at]].reshape(shapes[name]))
        return np.stack(totals)

    def _catch_up(self) -> None:
        """Makes the releases of every block that is full, reads those that were made, and plans."""
        while self._block < len(self._ends):
            if self._store.count(self._stream) < int(self._ends[self._block]) - self._begin:
                return
            for number, (name, stream) in enumerate(self._streams.items()):
                self._noisy[name].append(self._release(number, name, stream))
                self._released[name] = stream.release(self._noisy[name])
            self._block += 1
            self._memory, self._plan = self._planned(self._memory, int(self._ends[self._block - 1]))

    def _release(self, number: int, name: str, stream: ExactStream) -> np.ndarray:
        t = self._block

        def draw() -> np.ndarray:
            encoded = stream.encoded(self._blocks(name, t + 1))
            if self._key is None:
                return stream.noisy(encoded, Stream())
            return stream.noisy_in_simulation(encoded, SimulationKeys.of(self._key).white(number, t, 0))

        try:
            return self._store.release(f"{name}/{t}", f"releases of {name}", 1.0, draw)
        except BurntError as error:
            raise BurntError(
                f"Release {t} of `{name}` was burnt by a crash, and later ones build on it. Open the store with "
                "`after_crash='redraw'`: nobody has seen the first draw, so drawing again is safe."
            ) from error

    def _planned(self, memory: Any, seen: int) -> tuple[Any, Plan]:
        return _next_plan(self._learner, memory, dict(self._released), jnp.asarray(seen))

    def _person(self) -> PRNGKeyArray | None:
        """The simulation's randomness for the person at hand; none with real people."""
        return None if self._key is None else SimulationKeys.of(self._key).person(self._block, self.num_seen)


class Agent(AbstractAgent):
    """A learner for finite worlds at work: `act` at every step, then `end_episode` when the person leaves.

    Arguments and guarantee are those of `AbstractAgent`.
    """

    def act(self, state: int, step: int) -> int:
        """The action for the person at hand, drawn from the published policy."""
        horizon, num_states, _ = self._plan.policy.probabilities.shape
        if not (0 <= step < horizon and 0 <= state < num_states):
            raise ValueError(
                f"`step` must lie in [0, {horizon}) and `state` in [0, {num_states}); one of them does not."
            )
        return int(draw_action(self._plan.policy, state, step, self._coin(step)))

    def _coin(self, step: int) -> float:
        """A uniform number in [0, 1) for one action: of the simulation, or of the operating system."""
        person = self._person()
        if person is None:
            return secrets.randbits(53) * 2.0**-53
        return float(action_coin(person, self._learner.horizon, step))

    def _blank(self) -> Trajectory:
        zeros = jnp.zeros(self._learner.horizon, int)
        return Trajectory(zeros, zeros, jnp.zeros(self._learner.horizon), zeros, jnp.zeros((), int))


class Controller(AbstractAgent):
    """A learner of linear control at work: `act` gives the input and the exploration that is part of it.

    Keep both for the trajectory: what was explored is what the learner learns from. Arguments and guarantee are those
    of `AbstractAgent`.
    """

    def act(self, state: Float[np.ndarray, " n"], step: int) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
        """The input for the person at hand, and the random part of it."""
        gains, radius = np.asarray(self.policy.gains), float(self.policy.radius)
        horizon, d, n = gains.shape
        x = np.asarray(state, float)
        if not (0 <= step < horizon and x.shape == (n,) and np.isfinite(x).all()):
            raise ValueError(
                f"`step` must lie in [0, {horizon}) and `state` be {n} finite numbers; one of them is not."
            )
        person = self._person()
        if person is None:
            white = np.random.default_rng(secrets.randbits(128)).normal(size=d)
            explored = np.asarray(radius * white / np.linalg.norm(white))
        else:
            explored = np.asarray(explorations(self.policy, person)[step])
        return gains[step] @ x + explored, explored

    def _blank(self) -> LQTrajectory:
        horizon, d, n = self.policy.gains.shape
        return LQTrajectory(
            jnp.zeros((horizon + 1, n)), jnp.zeros((horizon, d)), jnp.zeros((horizon, d)), jnp.zeros((), int)
        )


@eqx.filter_jit
def _next_plan(
    learner: AbstractOnlineLearner, memory: Any, released: dict[str, Release], seen: Int[Array, ""]
) -> tuple[Any, Plan]:
    return learner.next_plan(memory, released, _no_question, seen)


def _no_question(name: str, index: int, question: Any) -> Any:
    raise PairingError(f"`{name}` cannot be asked for: `Agent` keeps sums only.")
