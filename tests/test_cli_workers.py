"""What the command line refuses about workers, before a process is started or a row is read."""

from pathlib import Path

import pytest

from privrl.cli.main import main

FIT = ["fit", "stays.parquet", "--recipe", "dp-apvi", "--epsilon", "1", "--delta", "1e-6", "--out", "out"]
COLUMNS = [f"--{name}={name}" for name in ("unit", "step", "state", "action", "reward")]
SIZES = ["--horizon=3", "--num-states=3", "--num-actions=2"]
TABLE = [*FIT, *COLUMNS, *SIZES]
EVALUATE = [
    "evaluate",
    "here.parquet",
    "there.parquet",
    "policy.npz",
    "--epsilon",
    "1",
    "--delta",
    "1e-6",
    "--out",
    "e",
]
RUN = ["run", "ucbvi", "--env", "riverswim", "--episodes", "10"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([*TABLE, "--workers", "0"], "`--workers` is 0; it must be at least 1"),
        ([*TABLE, "--dask", "tcp://10.0.0.7:8786"], "would travel in the clear"),
        ([*TABLE, "--dask", "tls://10.0.0.7:8786"], "`--dask-ca`"),
        ([*TABLE, "--dask-ca", "ca.pem"], "`--dask-ca` belongs to `--dask`"),
        ([*TABLE, "--workers", "2", "--dask", "tcp://127.0.0.1:1"], "`--workers` means processes on this machine"),
        ([*TABLE, "--workers", "2", "--seed", "3"], "Leave out one of them"),
        ([*TABLE[:1], "here.parquet", *TABLE[1:]], "no file or folder `here.parquet`"),
        ([*TABLE[:1], "env:riverswim", *TABLE[1:]], "cannot be one of several paths"),
        ([*EVALUATE, *COLUMNS, *SIZES, "--workers", "0"], "`--workers` is 0"),
        ([*EVALUATE, *COLUMNS, *SIZES, "--workers", "1", "--seed", "1"], "Leave out one of them"),
        (["fit", "env:riverswim", "--recipe", "apvi", "--workers", "2"], "these people are simulated"),
        ([*RUN, "--workers", "0"], "`--workers` is 0"),
        (["reproduce", "frontier-online", "--out", "f", "--workers", "0"], "`--workers` is 0"),
    ],
)
def test_what_is_wrong_about_workers_is_said(
    arguments: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert complaint in " ".join(capsys.readouterr().err.split())
