"""Offline: a table of people in, a private policy and its certificate out.

Run it with `python examples/offline.py`; it writes only to a temporary folder.
"""

import os
import tempfile
from pathlib import Path

import jax

import privrl

TOY = bool(os.environ.get("PRIVRL_TOY"))
STAYS = 2_000 if TOY else 200_000

# A simulated world stands in for the hospital: people act as they like, and a table is written, one row per step.
world = privrl.envs.RiverSwim(states=4, horizon=8)
people = world.sample(world.behaviour_policy(), STAYS, jax.random.key(0))

with tempfile.TemporaryDirectory() as folder:
    table = Path(folder) / "stays.parquet"
    privrl.data.write_parquet(table, people)

    # From here on it is what you would do with a table of your own. The horizon and the numbers of states and actions
    # are public: say them, never read them off the data.
    data = privrl.data.read_parquet(
        table,
        unit="unit_id",
        episode="episode_id",
        step="step",
        state="state",
        action="action",
        reward="reward",
        next_state="next_state",
        horizon=8,
    )
    learner = privrl.APVI(num_states=4, num_actions=2, horizon=8, counting="first-visit")

    # No key: the noise comes from the operating system, as it must for real people.
    result = privrl.fit(data, learner, privrl.Central(epsilon=1.0, delta=1e-6), unit="patient")
    result.save(Path(folder) / "policy")

    # Somebody else loads the policy. They need none of the data, and learn nothing about a person beyond the budget.
    loaded = privrl.Result.load(Path(folder) / "policy")

print(loaded.certificate)
print("first action in each state:", [loaded.policy.action(state, step=0) for state in range(4)])

# Only because the world is simulated do we know what the policy is worth, and what it would be worth without privacy.
plain = privrl.fit(
    privrl.data.Episodes.from_trajectories(people, num_states=4, num_actions=2),
    learner,
    privrl.NonPrivate(),
    unit="patient",
)
for name, policy in (
    ("private", loaded.policy),
    ("not private", plain.policy),
    ("as observed", world.behaviour_policy()),
):
    print(f"value {float(world.value(policy)):.4f}  {name}")
print(f"value {float(world.optimal_value):.4f}  best possible")
