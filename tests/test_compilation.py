"""Programs that simulations compile are kept between processes, and only those."""

import os
import subprocess
import sys

import pytest

from privrl.cli.compilation import VARIABLE

RUN = ["run", "ucbvi", "--env", "riverswim", "--env-arg", "states=3", "--episodes", "50", "--seed", "1", "--json"]
TABLE = """
import numpy as np, privrl
ones = np.ones((30, 2), int)
data = privrl.data.Episodes.from_arrays(ones, ones, ones * 0.5, horizon=2, num_states=2, num_actions=2)
privrl.fit(data, privrl.APVI(2, 2, 2), privrl.Central(epsilon=1.0, delta=1e-6))
"""


def in_process(arguments, folder, **variables):
    kept = {name: value for name, value in os.environ.items() if name not in ("JAX_COMPILATION_CACHE_DIR", VARIABLE)}
    environment = kept | {"XDG_CACHE_HOME": str(folder)} | variables
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.slow
def test_simulations_keep_what_they_compile_unless_told_otherwise(tmp_path):
    assert in_process(["-m", "privrl.cli", *RUN], tmp_path, **{VARIABLE: "off"}) == []
    kept = in_process(["-m", "privrl.cli", *RUN], tmp_path)
    assert kept
    assert (tmp_path / "privrl" / "compiled").stat().st_mode & 0o077 == 0
    written = {path: path.stat().st_mtime_ns for path in kept}
    # Programs that took less than a tenth of a second may take longer the next time, and are then kept too.
    assert set(kept) <= set(in_process(["-m", "privrl.cli", *RUN], tmp_path))
    assert {path: path.stat().st_mtime_ns for path in kept if not path.name.endswith("-atime")} == {
        path: time for path, time in written.items() if not path.name.endswith("-atime")
    }


@pytest.mark.slow
def test_programs_of_tables_are_not_kept(tmp_path):
    assert in_process(["-c", TABLE], tmp_path) == []
