"""The examples in docstrings run, and every name of the root package has one."""

import doctest
import inspect
from importlib import import_module
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import privrl

SOURCE = Path(privrl.__file__).parent
MODULES = sorted(
    ".".join(("privrl", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    for path in SOURCE.rglob("*.py")
    if ">>> " in path.read_text()
)
LONG = {  # to compile
    "privrl.learners.continuous.lap",
    "privrl.learners.control.cautious_lq",
    "privrl.learners.control.ofu_lq",
    "privrl.learners.linear.lsvi_ucb",
    "privrl.learners.linear.lsvi_ucb_plus_plus",
    "privrl.learners.linear.ucrl_vtr",
}
RAISE_NOTHING = {"Arm", "Broadcast", "MessageError", "NonPrivate", "Ticket", "Outcome"} | {  # when they are built
    "LSVIUCBPlusPlus",
    "PEVI",
    "Trial",
    "UCBVI",
    "VAPVI",
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in MODULES])
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = import_module(name)
    names = {**vars(module), "privrl": privrl, "jax": jax, "jnp": jnp, "np": np}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, name, globs=names):
        runner.run(test)
    assert runner.failures == 0


@pytest.mark.parametrize("name", privrl.__all__)
def test_every_name_of_the_root_has_an_example(name: str) -> None:
    assert ">>> " in (inspect.getdoc(getattr(privrl, name)) or "")


@pytest.mark.parametrize("name", [name for name in privrl.__all__ if name not in RAISE_NOTHING])
def test_names_of_the_root_say_what_they_raise(name: str) -> None:
    assert "Raises:" in inspect.getdoc(getattr(privrl, name))
