"""Offline: a table of people in, a private policy and its certificate out.

Run it with `python examples/offline.py`; it writes only to a temporary folder.
"""

import os
import tempfile
from pathlib import Path

import jax

import privrl

TOY = bool(os.environ.get("PRIVRL_TOY"))
PEOPLE = 2_000 if TOY else 200_000

# A simulated world stands in for the hospital. It writes a table with one row per step.
world = privrl.envs.RiverSwim(states=4, horizon=8)
people = world.sample(world.behaviour_policy(), PEOPLE, jax.random.key(0))

# The columns and what is public about them. Never read these numbers off the data.
schema = {
    "unit": "unit_id",
    "episode": "episode_id",
    "step": "step",
    "state": "state",
    "action": "action",
    "reward": "reward",
    "next_state": "next_state",
    "horizon": 8,
    "num_states": 4,
    "num_actions": 2,
}

with tempfile.TemporaryDirectory() as folder:
    table, saved = Path(folder) / "stays.parquet", Path(folder) / "policy"
    privrl.data.write_parquet(table, people)

    # Without a key the noise comes from the operating system, as it must for real people.
    private = privrl.fit(table, "dp-apvi", schema=schema, epsilon=1, delta=1e-6, unit="patient")
    private.save(saved)
    plain = privrl.fit(table, "apvi", schema=schema, unit="patient")

    # Others can load the policy without the data. It reveals no more about a person than the budget allows.
    loaded = privrl.Result.load(saved)

print(loaded.certificate)
print("first action in each state:", [loaded.policy.action(state, step=0) for state in range(4)])

# The true values are known only because the world is simulated.
policies = {"private": loaded.policy, "not private": plain.policy, "current practice": world.behaviour_policy()}
for name, policy in policies.items():
    print(f"value {float(world.value(policy)):.4f}  {name}")
print(f"value {float(world.optimal_value):.4f}  best possible")
