"""The pictures of a policy on measurements: names, bounds and regions as they are, and nothing that becomes a tag."""

import jax
import jax.numpy as jnp
from test_report import Reader, page_with

from privrl.mdp.measured_policy import MeasuredPolicy
from privrl.mdp.measurements import Category, Feature, Measurement
from privrl.mdp.policy_slices import map_policy
from privrl.mdp.quadratic_features import QuadraticFeatures
from privrl.plots.policy_maps import Palette, draw_map
from privrl.reports.display_names import Names
from privrl.reports.policy_section import render_policy

NASTY = "<script>$a$ & \"b'"
COLUMNS = (
    Feature("map", 30, 130, missing=True),
    Feature(NASTY, 0.1, 10, missing=True, log=True),
    Category("ward", ("icu", NASTY)),
)


def policy(columns: tuple[Measurement, ...], actions: int = 20) -> MeasuredPolicy:
    F = sum(isinstance(column, Feature) for column in columns)
    d = QuadraticFeatures(columns, jnp.zeros(F), jnp.ones(F)).dim
    theta = jax.random.normal(jax.random.key(0), (actions, d))
    practice = jnp.zeros((d, actions)).at[0].set(2.0 / actions)
    arrays = (jnp.zeros(F), jnp.full(F, 0.5), theta, practice, jnp.zeros(()), jnp.array(0.1))
    return MeasuredPolicy(columns, None, *arrays)


def test_a_section_has_a_map_strips_and_the_same_in_words_and_no_name_becomes_a_tag() -> None:
    names = Names(actions=[f"{NASTY} {i}" for i in range(19)])  # one action has no name
    text = render_policy(policy(COLUMNS), names)
    read = Reader(page_with(text))
    assert read.open == [] and "script" not in read.seen and read.seen.count("svg") == 3
    assert all(read.alternatives) and any(NASTY in words for words in read.alternatives)
    assert "the two measurements that matter most" in read.text and "not measured" in read.text
    assert "30.0 to" in read.text and "to 130.0" in read.text and f"ward {NASTY}" in read.text


def test_one_measurement_has_no_map_and_nothing_is_said_to_be_missing_that_cannot_be() -> None:
    one = policy((Feature("map", 30, 130),), 3)
    text = render_policy(one)
    read = Reader(page_with(text))
    assert text == render_policy(one)  # the same policy, the same page
    assert read.seen.count("svg") == 1 and "Action by region" not in read.text
    assert "not measured" not in read.text and "“None”" not in read.text
    assert Reader(page_with(render_policy(policy((Category("ward", ("a", "b")),), 2)))).seen.count("svg") == 1


def test_doses_have_an_ordered_ramp_of_colours() -> None:
    def light(colour: str) -> float:
        return sum(share * int(colour[i : i + 2], 16) for share, i in ((0.3, 1), (0.59, 3), (0.11, 5)))

    ramp = [light(Palette((5,)).look(action)["facecolor"]) for action in range(5)]
    assert ramp == sorted(ramp, reverse=True) and len(set(ramp)) == 5
    assert Palette((5,)).ink(0) != Palette((5,)).ink(4) == "white"
    two = Palette((3, 2))  # action 2 i + j: dose i of the first drug, dose j of the second
    for second in (0, 1):
        shades = [light(two.look(2 * dose + second)["facecolor"]) for dose in range(3)]
        assert shades == sorted(shades, reverse=True)
    assert len({two.look(action)["facecolor"] for action in range(6)}) == 6
    plain = [light(Palette().look(action)["facecolor"]) for action in range(8)]
    assert plain != sorted(plain, reverse=True)


def test_every_action_of_a_map_is_in_its_legend() -> None:
    found = map_policy(policy(COLUMNS, 3), 0, 1)
    figure = draw_map(found, "advised", lambda action: f"dose {action}")
    legend = [text.get_text() for sub in figure.subfigs for one in sub.legends for text in one.get_texts()]
    assert legend == [f"dose {action}" for action in sorted(set(found.advised.ravel().tolist()))]
