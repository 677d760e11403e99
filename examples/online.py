"""Online: a service that learns while people use it, with joint differential privacy and without privacy.

Run it with `python examples/online.py`.
"""

import os

import privrl

TOY = bool(os.environ.get("PRIVRL_TOY"))
PEOPLE, SEEDS = (200, 2) if TOY else (50_000, 10)

world = privrl.envs.RiverSwim(states=3)
simulated = {"episodes": PEOPLE, "seeds": SEEDS, "key": 0}  # a key means a simulation; the certificate states it

# The same learner twice; only the privatizer differs.
plain = privrl.run(world, "ucbvi", **simulated)
private = privrl.run(world, "dp-ucbvi", epsilon=1, delta=1e-6, **simulated)
for name, run in (("not private", plain), ("central, epsilon 1", private)):
    mean = run.total_regret.mean()
    error = run.total_regret.std(ddof=1) / SEEDS**0.5
    print(f"{name:>20}: total regret {mean:9.2f} ± {error:.2f}")

random_actions = PEOPLE * float(world.regret(world.uniform_policy()))
print(f"{'random actions':>20}: total regret {random_actions:9.2f}")
print(private.certificate)
