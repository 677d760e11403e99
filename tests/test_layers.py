"""The layers point one way, the privacy layer does not know what its numbers mean, and learners draw no noise."""

import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "privrl"

# A mechanism may keep a `state` (its memory); the other words belong to the layers above.
FORBIDDEN = {"action", "reward", "episode", "trajectory", "trajectories", "policy", "policies"}


def words(text: str) -> set[str]:
    """The lower-case words of a text, with `snake_case` and `CamelCase` names taken apart."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    return {word.lower() for word in re.findall(r"[A-Za-z]+", apart)}


def foreign_words(text: str) -> set[str]:
    return {word for word in words(text) if word in FORBIDDEN or word.removesuffix("s") in FORBIDDEN}


def random_sources(tree: ast.AST) -> list[str]:
    """Every way of this module to reach random numbers: `jax.random`, `numpy.random`, `random`, `secrets`."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = [f"{node.value.id}.{node.attr}"]
        else:
            continue
        found += [
            name
            for name in names
            if re.match(r"(jax|np|numpy|jnp)\.random\b|random\b|secrets\b|jrandom\b|os\.urandom\b", name)
        ]
    return found


def modules(package: str) -> list[Path]:
    return sorted((SOURCE / package).rglob("*.py"))


def test_import_contracts_hold() -> None:
    program = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True, no_logo=True))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", modules("privacy"), ids=lambda path: path.name)
def test_privacy_does_not_speak_of_reinforcement_learning(path: Path) -> None:
    source = path.read_text()
    offending = {
        f"line {token.start[0]}: {', '.join(sorted(foreign_words(token.string)))}"
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if foreign_words(token.string)
    }
    assert not offending


@pytest.mark.parametrize("path", [*modules("learners"), *modules("evaluation")], ids=lambda path: path.name)
def test_learners_draw_no_random_numbers(path: Path) -> None:
    assert random_sources(ast.parse(path.read_text())) == []


def test_the_checks_have_something_to_check() -> None:
    assert len(modules("privacy")) > 3
    assert len(modules("learners")) > 3


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("sum_of_rewards", {"rewards"}),
        ("TabularPolicy", {"policy"}),
        ("# one episode each", {"episode"}),
        ("a transaction, a statement, its state", set()),
    ],
)
def test_foreign_words_are_whole_words(text: str, found: set[str]) -> None:
    assert foreign_words(text) == found


@pytest.mark.parametrize(
    "code",
    [
        "import jax.random as jr",
        "from jax import random",
        "from jax.random import normal",
        "import jax\nx = jax.random.normal(k)",
        "import numpy as np\nx = np.random.default_rng()",
        "import random",
        "import secrets",
    ],
)
def test_random_sources_are_seen(code: str) -> None:
    assert random_sources(ast.parse(code))


def test_ordinary_imports_are_not_random_sources() -> None:
    code = "import jax.numpy as jnp\nfrom privrl.privacy import randomised\nx = jnp.zeros(3)"
    assert random_sources(ast.parse(code)) == []
