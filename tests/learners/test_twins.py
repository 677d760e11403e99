"""What `docs/recipes.md` says about a recipe and its private twin: one learner, or named among those that differ."""

import re
from pathlib import Path

import pytest

import privrl
from privrl.envs.worlds_by_name import make
from privrl.recipes.all_recipes import recipes
from privrl.studies.learner_settings import settings_of

PAGE = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()
FIRST, SECOND = (part for part in re.split(r"\n\n(?=\|)", PAGE)[1:])


def rows(table):
    """Recipe and twins of every row, those of papers left out; a row without a recipe belongs to the one above."""
    found, last = [], []
    for row in table.split("\n\n")[0].splitlines()[2:]:
        own, twins = (re.findall(r"`([^`]+)`", cell) for cell in row.split("|")[1:3])
        last = own or last
        found += [(one, twin) for one in last[:1] for twin in twins if "@" not in twin]
    return found


PAIRS, DIFFERENT = rows(FIRST), rows(SECOND)


def settings(name):
    recipe = recipes[name]
    worlds = {"control": privrl.envs.lq_worlds.LQScalar(), "measured": make("anticoagulation")}
    env = worlds.get(recipe.family, privrl.envs.RiverSwim(states=3))
    return settings_of(recipe.build(env))


def test_the_tables_were_read():
    assert {("fqi", "dp-fqi"), ("ucbvi", "ldp-ucbvi"), ("cautious-lq", "private-lq"), *DIFFERENT} <= set(PAIRS)
    assert len(DIFFERENT) == 3


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if recipes[pair[1]].family != "functional"], ids="/".join)
def test_twins_are_one_learner_unless_the_page_says_otherwise(pair):
    one, other = (settings(name) for name in pair)
    assert (one == other) is (pair not in DIFFERENT)
