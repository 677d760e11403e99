"""Trajectories, transitions, finite worlds and policies, as pytrees. Batch axes go in front."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray, PyTree

from privrl.contracts.policy import AbstractPolicy, class_array, class_in
from privrl.mdp.exported_policy import ON_STATES, Advice, ExportedPolicy
from privrl.mdp.measurements import NOT_RECORDED
from privrl.mdp.records import Columns, columns_of_steps
from privrl.mdp.rules import Rules, rules_array, rules_from_arrays

_KINDS = (int, int, float, int, int)  # of the parts of a trajectory of numbered states


def number(value: ArrayLike) -> Float[Array, "*shape"]:
    """A setting as an array leaf, so that runs with several settings can be batched."""
    return jnp.asarray(value, float)


class Trajectory(eqx.Module):
    """One episode, padded to the horizon `H`; a user may have several.

    `states`, `actions` and `next_states` are integers `[*batch, H]` in finite worlds and vectors `[*batch, H, n]` in
    continuous ones. Steps from `length` on are padding and never count. A `next_states` entry of -1 means that the next
    state was not recorded. In a vector of measurements (`mdp/measurements.py`) NaN is a missing value. A next state
    whose entries are all `NOT_RECORDED` is unknown; one whose entries are all `ENDED` does not exist. `propensities`
    are the logged probabilities with which a program took the recorded actions, and `extras`
    the columns that are only reported on (`mdp/reported_columns.py`); `None` if the record has no such columns.
    """

    states: Array | np.ndarray
    actions: Array | np.ndarray
    rewards: Float[Array | np.ndarray, "*batch H"]
    next_states: Array | np.ndarray
    length: Int[Array | np.ndarray, "*batch"]
    propensities: Float[Array | np.ndarray, "*batch H"] | None = None
    extras: Float[Array | np.ndarray, "*batch H 2"] | None = None

    @classmethod
    def empty(cls, horizon: int, dim: int | None = None) -> "Trajectory":
        """A record without steps: of vectors of `dim` measurements, or of numbered states."""
        zeros = np.zeros(horizon, int)
        states, after = (zeros, zeros - 1) if dim is None else _empty_vectors(horizon, dim)
        return cls(states, zeros, np.zeros(horizon), after, np.zeros((), int))

    @classmethod
    def from_steps(cls, steps: Sequence[Mapping[str, object]], *, horizon: int) -> "Trajectory":
        """Build an episode of numbered states from JSON, one object for each step.

        A step may have a `next_state`; otherwise it is the state of the step after. Errors name the step and the entry,
        never a value.

        >>> steps = [{"state": 0, "action": 1, "reward": 0.0}, {"state": 1, "action": 0, "reward": 1.0}]
        >>> Trajectory.from_steps(steps, horizon=3).next_states.tolist()
        [1, -1, -1]

        Raises:
            ValueError: if a step has a missing, unknown or malformed entry, or there are more steps than `horizon`.
        """
        columns = columns_of_steps(steps, horizon)
        return cls(*(np.asarray(column, kind) for column, kind in zip(columns, _KINDS, strict=True)))

    @classmethod
    def stack(cls, records: Sequence[Columns]) -> "Trajectory":
        """Stack the records of several people along a batch axis."""
        columns = zip(*records, strict=True)
        return cls(*(np.array(column, kind) for column, kind in zip(columns, _KINDS, strict=True)))

    @property
    def valid(self) -> Bool[Array, "*batch H"]:
        """A mask of the steps that were taken, as opposed to padding."""
        steps = jnp.broadcast_to(jnp.arange(self.rewards.shape[-1]), self.rewards.shape)
        return steps < jnp.asarray(self.length, steps.dtype)[..., None]


def _empty_vectors(horizon: int, dim: int) -> tuple[Float[np.ndarray, "H D"], Float[np.ndarray, "H D"]]:
    return np.zeros((horizon, dim)), np.full((horizon, dim), NOT_RECORDED)


class Transitions(eqx.Module):
    """Rows (step, state, action, next state) with the number of times each was seen and the sum of its rewards.

    One trajectory is `H` rows of count 0 or 1; a whole table compresses to its distinct rows. A statistic that is a sum
    over transitions is written once, for rows, and serves both.
    """

    step: Int[Array | np.ndarray, " N"]
    state: Int[Array | np.ndarray, " N"]
    action: Int[Array | np.ndarray, " N"]
    next_state: Int[Array | np.ndarray, " N"]
    count: Float[Array | np.ndarray, " N"]
    reward: Float[Array | np.ndarray, " N"]

    @classmethod
    def from_trajectory(cls, trajectory: Trajectory) -> "Transitions":
        """The rows of one trajectory of a finite world, in 64 bits, because cell numbers computed in 8 bits would wrap
        around."""
        count = trajectory.valid.astype(float)
        state, action, after = (
            jnp.asarray(x).astype(int) for x in (trajectory.states, trajectory.actions, trajectory.next_states)
        )
        return cls(jnp.arange(count.shape[0]), state, action, after, count, trajectory.rewards * count)


class TabularMDP(eqx.Module):
    """A finite MDP with `H` steps. Arrays have `G = H` stages, or `G = 1` if the world is stationary.

    `transition[g, s, a, s']`, `reward[g, s, a]` (the mean reward), `initial[s]`.
    """

    transition: Float[Array, "G S A S"]
    reward: Float[Array, "G S A"]
    initial: Float[Array, " S"]
    horizon: int = eqx.field(static=True)

    @property
    def num_states(self) -> int:
        return self.transition.shape[1]

    @property
    def num_actions(self) -> int:
        return self.transition.shape[2]


class TabularPolicy(AbstractPolicy):
    """Action probabilities `[H, S, A]`; ties of a planner are shared evenly, so comparisons do not depend on
    indices.

    `rules` are public rules. Those that do not depend on the previous action have probability 0 on what they forbid;
    a decision that the others forbid is left to the clinician (`advise`).
    """

    probabilities: Float[Array, "H S A"]
    rules: Rules = eqx.field(static=True, default=Rules())

    @classmethod
    @eqx.filter_jit
    def greedy(cls, values: Float[Array, "H S A"], tolerance: float = 1e-9) -> "TabularPolicy":
        """Uniform over the actions within `tolerance` of the best."""
        best = values >= values.max(axis=-1, keepdims=True) - tolerance
        return cls(best.astype(float) / best.sum(axis=-1, keepdims=True).astype(float))

    def realise(self, key: PRNGKeyArray) -> "TabularPolicy":
        """A deterministic policy: each (step, state) draws its action once."""
        num_actions = self.probabilities.shape[-1]
        actions = jax.random.categorical(key, jnp.log(self.probabilities), axis=-1)
        return TabularPolicy(jax.nn.one_hot(actions, num_actions, dtype=float))

    def action(self, state: int, step: int) -> int:
        """The most probable action (the first in a tie)."""
        return int(np.argmax(np.asarray(self.probabilities[step, state])))

    def advise(self, state: int, step: int = 0, *, previous: int | None = None) -> Advice:
        """The most probable action in a state.

        Arguments:
            state: the number of the state.
            step: the number of earlier decisions of the episode.
            previous: the action that was taken at the last decision; only rules use it.
        """
        return ExportedPolicy(self.to_json()).advise(state, step=step, previous=previous)

    def to_json(self) -> dict[str, object]:
        """The whole policy as JSON; `ExportedPolicy` runs it without JAX.

        `steps` has an action for each state, or pairs of an action and its probability if there are several; one row
        if all steps are the same, otherwise one for each step.
        """
        p = np.asarray(self.probabilities)
        stages = p[:1] if (p == p[:1]).all() else p
        return {
            "kind": ON_STATES,
            "num_actions": p.shape[2],
            "horizon": p.shape[0],
            "steps": [[_chances(chances) for chances in stage.tolist()] for stage in stages],
            **({"rules": self.rules.to_json()} if self.rules else {}),
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """The policy as named arrays, for a saved result."""
        names = [field.name for field in fields(self) if field.name != "rules"]
        return {n: np.asarray(getattr(self, n)) for n in names} | rules_array(self.rules) | class_array(self)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "TabularPolicy":
        """Read the output of `arrays`, of this class or of a registered subclass."""
        kind: Any = class_in(arrays) or cls
        names = [field.name for field in fields(kind) if field.name in arrays]
        return kind(**{n: jnp.asarray(arrays[n]) for n in names}, rules=rules_from_arrays(arrays))

    @classmethod
    def uniform(cls, horizon: int, num_states: int, num_actions: int) -> "TabularPolicy":
        """All actions with equal probability."""
        return cls(jnp.full((horizon, num_states, num_actions), 1.0 / num_actions))


def _chances(probabilities: list[float]) -> int | list[list[float]]:
    """The action that is certain, or pairs of actions and probabilities."""
    found: list[list[float]] = [[action, chance] for action, chance in enumerate(probabilities) if chance > 0.0]
    return int(found[0][0]) if len(found) == 1 and found[0][1] == 1.0 else found


class RecordForm:
    """The required parts, shapes and kinds of a record: those of `blank`.

    Only records of this form are processed further. Whether one person's record can be read must not affect another
    person, and no message may quote it: errors of the libraries below do both.
    """

    def __init__(self, blank: PyTree) -> None:
        leaves, self._structure = jax.tree.flatten(blank)
        self.name = type(blank).__name__
        self._wanted = [(np.shape(leaf), np.asarray(leaf).dtype) for leaf in leaves]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the parts."""
        return [shape for shape, _ in self._wanted]

    def leaves(self, record: object) -> list[np.ndarray] | None:
        """The arrays of a record, or `None` if its parts, shapes or kinds differ."""
        try:
            leaves, structure = jax.tree.flatten(record)
            if structure != self._structure:  # type: ignore[operator]
                return None
            arrays = [np.asarray(leaf) for leaf in leaves]
            if not all(map(_fits, arrays, self._wanted)):
                return None
            return [array.astype(kind, copy=False) for array, (_, kind) in zip(arrays, self._wanted, strict=True)]
        except Exception:  # an object from outside may raise anything when it is read
            return None

    def read(self, record: object) -> PyTree | None:
        """The record with its arrays converted, or `None` if it has another form."""
        leaves = self.leaves(record)
        return None if leaves is None else jax.tree.unflatten(self._structure, leaves)

    def stack(self, records: Sequence[list[np.ndarray]]) -> PyTree:
        """Stack the `leaves` of several records along a batch axis."""
        return jax.tree.unflatten(self._structure, [np.stack(column) for column in zip(*records, strict=True)])


def _fits(array: np.ndarray, wanted: tuple[tuple[int, ...], np.dtype]) -> bool:
    shape, kind = wanted
    return array.shape == shape and array.dtype.kind in ("iu" if kind.kind in "iu" else "iuf")
