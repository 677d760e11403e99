import jax, numpy as np, privrl
from contract import BUDGET, check_online
from privrl.envs._lq import LQScalar
from privrl.learners._ofu_lq import OFULQ


def test_con():
    check_online(OFULQ(LQScalar(2).task), LQScalar(2), local=(privrl.Local(**BUDGET),))


def test_plain():
    env = LQScalar(2)
    learner = OFULQ(env.task, first_block=1)
    settings = {"episodes": 3, "key": jax.random.key(3), "flow": False}
    compiled = privrl.run(env, learner, privrl.Central(**BUDGET), **settings)
    with jax.disable_jit():
        plain = privrl.run(env, learner, privrl.Central(**BUDGET), **settings)
    np.testing.assert_allclose(compiled.block_regret, plain.block_regret, atol=1e-10)
