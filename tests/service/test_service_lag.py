"""The service decides as a simulation whose plans lag: same key, same people, record by record over HTTP."""

import functools
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from clocks import Clock
from service.serving import CENTRAL, OPEN, serving, study_file

import privrl
from privrl.recipes.all_recipes import get
from privrl.studies.open_ended import OpenEnded
from privrl.studies.simulation.simulated_loop import SimulationKeys

DELAY = 1
TWICE = CENTRAL.replace("users = 40", "users = 40\nmax_episodes_per_unit = 2")
STUDIES = {  # the file, and how many people come; without a known end, over several epochs
    "known": (CENTRAL, 40),
    "computed meanwhile": (CENTRAL.replace("users = 40", "users = 40\nplan_delay = 1"), 40),
    "open-ended": (OPEN, 60),
    "twice": (TWICE, 40),
    "counting": (TWICE.replace("dp-ucbvi", "dp-lsvi-ucb"), 40),  # how many records there are is read off releases
    "forgetting": (OPEN.replace("first = 1", "epoch = 20, forget = 0.5"), 60),
}
QUICK = ("known", "open-ended", "computed meanwhile")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in STUDIES]
)
def test_the_service_decides_as_a_simulation_whose_plans_lag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Blocks arrive in steps of patience/(delay + 1), so each one closes when the one `delay` + 1 later arrives.

    With `plan_delay` each block closes when the next one arrives, and its plan takes effect one block later.
    """
    text, users = STUDIES[name]
    key = jax.random.key(9)
    seed = jax.random.split(key, (1, 1))[0, 0]
    monkeypatch.setattr("privrl.service.opening.Agent", functools.partial(privrl.Agent, key=seed))  # tests only
    file = study_file(tmp_path, text)
    spec = file.people if isinstance(file.people, OpenEnded) else False
    env = privrl.envs.RiverSwim(states=3, horizon=4)
    recipe = get(file.recipe)
    learner, private = recipe.build(env), recipe.privatizer(epsilon=1.0, delta=1e-6)
    simulated = privrl.run(
        env, learner, private, episodes=users, key=key, flow=False, delay=DELAY, open_ended=spec,
        max_episodes_per_unit=file.max_episodes_per_unit,
    )  # fmt: skip
    ends = [int(end) for end in file.ends() if end <= users]
    clock, rollout, regret = Clock(0.0), jax.jit(lambda policy, key: env.rollout(policy, key)), []
    with serving(file, clock) as service:
        agent: Any = service.served._agent
        for block, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            clock.time = block * 1000.0 / (1 if file.plan_delay else DELAY + 1)
            records = []
            for person in range(begin, end):
                ticket = service.ask("POST", "tickets", {"user": person}).json
                assert (int(ticket["number"]), ticket["plan"]) == (person, max(0, block - DELAY))
                policy = agent._plans[ticket["plan"]].policy
                record = jax.tree.map(np.asarray, rollout(policy, SimulationKeys.of(seed).person(block, person)))
                steps = [
                    {"state": int(s), "action": int(a), "reward": float(r), "next_state": int(n)}
                    for s, a, r, n in zip(
                        record.states, record.actions, record.rewards, record.next_states, strict=True
                    )
                ]
                records.append({"ticket": ticket["ticket"], "steps": steps})
            assert service.ask("POST", "episodes:batch", {"episodes": records}).status == 204
            regret.append(float(env.regret(policy)))
        clock.time += 1000.0
        service.ask("POST", "tickets", {"user": 0})  # whoever asks next finds all blocks closed
        last = agent._plans[len(ends)].policy
    np.testing.assert_allclose(regret, simulated.block_regret[0], atol=1e-9)
    np.testing.assert_allclose(last.probabilities, simulated.policy.probabilities[0], atol=1e-9)
