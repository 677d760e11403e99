"""Public randomness of a study with real people: the same for every process on its store, and after every restart."""

import os

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from privrl.privacy.store.release_store import ReleaseStore


def public_key(store: ReleaseStore, purpose: str, given: PRNGKeyArray | None) -> PRNGKeyArray:
    """The key for a purpose, drawn from the operating system by the first process, or the one that is `given`.

    Nothing secret depends on it: it breaks ties and samples plans, and noise never comes from it.
    """
    own = jax.random.key(int.from_bytes(os.urandom(8), "little") >> 1) if given is None else given
    content = np.asarray(jax.random.key_data(own), "<u4").tobytes()
    kept = store.fact(purpose, lambda: content)
    if given is not None and kept != content:
        raise ValueError(
            f"Another process on this store has the public randomness of {purpose} from another `key`. Pass the same "
            "one, or none."
        )
    return jax.random.wrap_key_data(jnp.asarray(np.frombuffer(kept, "<u4")))
