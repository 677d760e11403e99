"""What NumPy moves in tests is what JAX would move: the same bits, types and shapes as in compiled code."""

import jax
import jax.numpy as jnp
import numpy as np

WEAK, TABLE = jnp.asarray(2.5), jnp.asarray(np.arange(6.0).reshape(2, 3))
MOVES = (
    lambda weak, x: jnp.full((2, 3), 7.0),
    lambda weak, x: jnp.full(2, 7, "int32"),
    lambda weak, x: jnp.broadcast_to(weak, (3,)),
    lambda weak, x: weak.reshape(1).astype(float),
    lambda weak, x: (x > 2).astype(float),
    lambda weak, x: jnp.arange(4).astype(float),
    lambda weak, x: jnp.concatenate([x, jnp.zeros((1, 3))]).T[1:, ::2],
    lambda weak, x: jax.lax.broadcast_in_dim(x, (2, 4, 3), (0, 2)),
    lambda weak, x: jnp.expand_dims(x, 1).squeeze(1),
    lambda weak, x: jnp.asarray(np.array([-0.0, np.nan, 5e-324])),
)


def test_moves_are_those_of_compiled_code() -> None:
    for number, move in enumerate(MOVES):
        moved, compiled = move(WEAK, TABLE), jax.jit(move)(WEAK, TABLE)
        assert (moved.dtype, moved.shape, moved.weak_type) == (compiled.dtype, compiled.shape, compiled.weak_type), (
            number
        )
        assert np.asarray(moved).tobytes() == np.asarray(compiled).tobytes(), number


def test_an_array_does_not_follow_what_it_was_made_of() -> None:
    numbers = np.arange(1024.0)
    array = jnp.asarray(numbers)
    numbers[:] = 0.0
    assert float(array[-1]) == 1023.0
