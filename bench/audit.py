"""`python -m bench.audit`: what one run of a mechanism costs in an audit, against fitting again for every run."""

import jax

import privrl
from bench.timing import Row, seconds
from privrl.audit.empirical import lower_bound
from privrl.audit.worlds import choose_world, make_data
from privrl.envs.base import Env
from privrl.recipes.all_recipes import get

RECIPE, EPSILON, DELTA = "dp-vapvi", 1.0, 1e-6


def trials(number: int = 2_000, people: int = 1_000) -> Row:
    """Seconds per run of one of the two worlds: a `fit` each, against a whole audit divided by its runs.

    The audit's time includes its one recorded fit and the search for the worst pair of records.
    """
    recipe = get(RECIPE)
    world, learner = choose_world(recipe)
    assert isinstance(world, Env)
    data, private = (
        make_data(world, learner, people, jax.random.key(0)),
        recipe.privatizer(epsilon=EPSILON, delta=DELTA),
    )

    def audit() -> float:
        report = lower_bound(RECIPE, epsilon=EPSILON, delta=DELTA, trials=number, key=jax.random.key(2))
        if not report.epsilon_lower <= report.epsilon_claimed:
            raise SystemExit("the audit found a recipe broken that is not")
        return report.epsilon_lower

    plain = seconds(lambda: privrl.fit(data, learner, private, key=jax.random.key(1)).policy)
    name = f"a run of {RECIPE} in an audit: one fit each / {number:,} runs in each of two worlds"
    return name, plain, seconds(audit, 2) / (2 * number)


if __name__ == "__main__":
    name, plain, ours = trials()
    print(f"{name}: {plain:.4g} s / {ours:.4g} s = {plain / ours:.1f}")
