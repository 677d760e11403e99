"""Local: nobody is trusted. Each person's device sends one small noisy message, and a server learns from them.

Run it with `python examples/local.py`.
"""

import os

import equinox as eqx
import jax

import privrl

TOY = bool(os.environ.get("PRIVRL_TOY"))
PEOPLE = 40 if TOY else 2_000

world = privrl.envs.RiverSwim(states=3)
learner = privrl.UCBVI(world.rewards, horizon=world.horizon)
privatizer = privrl.Local(epsilon=3.0)

server = privrl.Server(learner, privatizer, num_users=PEOPLE)
act = eqx.filter_jit(world.rollout)
for person in range(PEOPLE):
    broadcast = server.broadcast()  # a ticket, the current policy, and what is asked
    trajectory = act(broadcast.plan.policy, jax.random.key(person))  # stays on the device

    # No key: the device's own operating system draws the noise. A client reports once; a second time raises.
    client = privrl.Client(learner, privatizer)
    message = client.report(trajectory, broadcast).to_bytes()

    server.absorb(message)

result = server.result()
print(f"{server.num_reports} messages, the last one of {len(message)} bytes")
print(f"value {float(world.value(result.policy)):.4f}  learned from them")
print(f"value {float(world.value(world.uniform_policy())):.4f}  random actions")
print(f"value {float(world.optimal_value):.4f}  best possible")
print(result.certificate)
