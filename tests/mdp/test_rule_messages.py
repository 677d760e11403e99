"""What a file of rules is refused for, with a remedy."""

from pathlib import Path
from typing import Any

import pytest

from privrl.mdp.measurements import Category, Feature
from privrl.mdp.rule_file import Vocabulary, read_rules

WORDS = Vocabulary(4, (Feature("bp", 50, 200), Feature("potassium", 2, 8), Category("ward", ("icu", "or", "home"))))


@pytest.mark.parametrize(
    ("entry", "remedy"),
    [
        ({"if": "bp < 95 or potassium > 5", "then": "action <= 1"}, "`or` is not supported. Write two rules"),
        ({"if": ["bp < 95", "ward is icu or home"], "then": "action <= 1"}, "`ward in icu, home`"),
        ({"if": "bp < 95 and potassium > 5", "then": "action <= 1"}, "`and` is not supported. Write a list of cond"),
        ({"if": "bp < 95", "then": "action is 0 or 1"}, "Write one limit on what is allowed, for example `action in"),
        ({"if": "bp < 95", "then": "action < 3 and action > 0"}, "Write a list of limits"),
    ],
)
def test_conditions_are_not_joined_by_words(entry: Any, remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy) as refused:
        read_rules([entry], WORDS)
    assert str(refused.value).startswith("Rule 1, `")


def test_a_value_may_be_such_a_word() -> None:
    assert read_rules([{"if": "ward is or", "then": "action <= 1"}], WORDS).rules[0].conditions[0].values == (1,)
    with pytest.raises(ValueError, match="compare it with <, <=, > or >=") as refused:
        read_rules([{"if": ["ward is or", "bp is 3"], "then": "action <= 1"}], WORDS)
    assert "not supported" not in str(refused.value)


def test_a_file_of_rules_is_named_with_what_is_wrong(tmp_path: Path) -> None:
    for source in (tmp_path / "nix.toml", str(tmp_path / "nix.toml")):
        with pytest.raises(ValueError, match=r"nix.toml` cannot be read: No such file.* Give the path of a TOML file"):
            read_rules(source, WORDS)
    for content in ("", "[rules]\n", "[[rules]]\nthen = 'action <= 1'\n"):
        (tmp_path / "rules.toml").write_text(content)
        with pytest.raises(ValueError, match=r"rules.toml` must have entries `\[\[rule\]\]` and nothing else"):
            read_rules(tmp_path / "rules.toml", WORDS)
    (tmp_path / "rules.toml").write_text("rule = []\n")
    with pytest.raises(ValueError, match=r"rules.toml` must have at least one rule"):
        read_rules(tmp_path / "rules.toml", WORDS)
