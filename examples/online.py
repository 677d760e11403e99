"""Online: a service that learns while people use it, with joint differential privacy, against its non-private self.

Run it with `python examples/online.py`.
"""

import os

import jax

import privrl

TOY = bool(os.environ.get("PRIVRL_TOY"))
PEOPLE, SEEDS = (200, 2) if TOY else (50_000, 10)

world = privrl.envs.RiverSwim(states=3)
learner = privrl.UCBVI(world.rewards, horizon=world.horizon)
key = jax.random.key(0)  # a simulation: the certificate says so

# The same learner twice. Who is trusted is said beside it, never inside it.
for name, privatizer in (
    ("not private", privrl.NonPrivate()),
    ("central, epsilon 1", privrl.Central(epsilon=1.0, delta=1e-6)),
):
    run = privrl.run(world, learner, privatizer, episodes=PEOPLE, seeds=SEEDS, key=key)
    mean = run.total_regret.mean()
    error = run.total_regret.std(ddof=1) / SEEDS**0.5
    print(f"{name:>20}: total regret {mean:9.2f} ± {error:.2f}")

uniform = PEOPLE * float(world.regret(world.uniform_policy()))
print(f"{'random actions':>20}: total regret {uniform:9.2f}")
print(run.certificate)
