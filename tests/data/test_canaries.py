"""Whatever is wrong with a table, nothing that is printed or raised quotes a cell of it.

Every fault is made in every column that can have it, with a canary in the cell (and ids, steps and rewards that are
canaries everywhere), and the table goes through `check`, `digest`, `fit` and the command line, sorted or not.
"""

import contextlib
import decimal
import io
import re
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tables import BOUNDS, COLUMNS, good_rows

import privrl
from privrl.cli import main
from privrl.cli.main import root
from privrl.data.episodes import Episodes
from privrl.data.reward_function import RewardFunction
from privrl.data.schema.table_schema import TableError
from privrl.data.tables.parquet import read_parquet
from privrl.data.tables.write import write_parquet
from privrl.learners.tabular.apvi import APVI
from privrl.mdp.measurements import BinnedAction, Category, Feature
from privrl.mdp.types import Trajectory

NUMBER = 918273645
TEXT = "zyxwvcanary"
COLUMN = {**COLUMNS, "next_state": "after", "terminated": "end"}
Rows = dict[str, Any]
Files = dict[str, pa.Table | bytes]
NAMES = list(COLUMN.values())
IDS, COUNTED = ["patient", "stay"], ["hour", "ward", "drug", "after", "end"]
NUMBERS = [*COUNTED, "gain"]


def rows() -> Rows:
    """A faultless table whose ids, steps and rewards are canaries."""
    good: Rows = dict(good_rows())
    good["patient"] = [TEXT + name for name in good["patient"]]
    good["stay"] = [NUMBER * 100 + stay for stay in good["stay"]]
    good["hour"] = [NUMBER * 10 + hour for hour in good["hour"]]
    good["gain"] = [0.918273645] * 7
    return good | {"after": [0] * 7, "end": [0] * 7}


def cell(name: str, value: Any, dtype: pa.DataType | None = None, row: int = 5) -> pa.Table:
    """The table with one cell replaced, in a column of a type that holds it."""
    values = list(rows()[name])
    values[row] = value
    return pa.table(rows() | {name: pa.array(values, dtype)})


def whole(name: str, values: Any, dtype: pa.DataType | None = None) -> pa.Table:
    """The table with one column replaced."""
    return pa.table(rows() | {name: pa.array(values, dtype)})


def second(name: str, values: Any, dtype: pa.DataType | None = None) -> Files:
    """A faultless file and one with another column."""
    later = {column: cells[4:] for column, cells in rows().items()}
    return {"a": pa.table(rows()).slice(0, 4), "b": pa.table(later | {name: pa.array(values, dtype)})}


def written(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="none", **options)
    return sink.getvalue()


def overwritten(name: str, where: float, by: bytes, **options: Any) -> bytes:
    """The bytes of one column chunk overwritten at a relative place."""
    raw = bytearray(written(pa.table(rows()), **options))
    chunk = pq.ParquetFile(io.BytesIO(raw)).metadata.row_group(0).column(list(rows()).index(name))
    first = chunk.data_page_offset if not options.get("use_dictionary") else chunk.dictionary_page_offset
    at = first + int(where * chunk.total_compressed_size)
    raw[at : at + len(by)] = by
    return bytes(raw)


def truncated(name: str, share: float) -> bytes:
    del name
    raw = written(pa.table(rows()))
    return raw[: int(share * len(raw))]


def spoilt_footer(name: str) -> bytes:
    """The name of a column in the footer replaced by bytes that are no text."""
    raw = written(pa.table(rows()), store_schema=False)
    footer = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    return raw[:footer] + raw[footer:].replace(name.encode(), b"\xff" * len(name))


def not_text(name: str) -> pa.Table:
    raw = pa.array([TEXT.encode() + b"\xff"] * 7)
    return pa.table(rows() | {name: pa.Array.from_buffers(pa.string(), 7, raw.buffers())})


def twice(name: str) -> pa.Table:
    table = pa.table(rows())
    return pa.table([*table.columns, pa.array([TEXT] * 7)], [*table.column_names, name])


def comes_back(name: str) -> pa.Table:
    ids = rows()[name]
    return pa.table(rows() | {name: [ids[0], ids[0], ids[4], ids[4], ids[0], ids[0], ids[0]]})


FAULTS: dict[str, tuple[Callable[[str], pa.Table | bytes | Files], list[str]]] = {
    "out of range": (lambda name: cell(name, NUMBER), [*COUNTED[1:], "gain"]),
    "negative": (lambda name: cell(name, -NUMBER), NUMBERS),
    "fraction": (lambda name: cell(name, NUMBER + 0.5, pa.float64()), NUMBERS),
    "small fraction": (lambda name: cell(name, 0.918273645, pa.float32()), COUNTED[1:]),
    "huge": (lambda name: cell(name, NUMBER * 1e300, pa.float64()), NUMBERS),
    "above 2^63": (lambda name: whole(name, [2**63 + NUMBER] * 7, pa.uint64()), NUMBERS),
    "infinite": (lambda name: cell(name, float("inf"), pa.float64()), NUMBERS),
    "nan": (lambda name: cell(name, float("nan"), pa.float64()), NUMBERS),
    "null": (lambda name: cell(name, None), [name for name in NAMES if name != "after"]),
    "null category": (
        lambda name: pa.table(rows() | {name: cell(name, None).column(name).combine_chunks().dictionary_encode()}),
        [name for name in NAMES if name != "after"],
    ),
    "text": (lambda name: whole(name, [TEXT] * 7), NUMBERS),
    "digits": (lambda name: whole(name, [str(NUMBER)] * 7, pa.large_string()), NUMBERS),
    "category": (lambda name: whole(name, [TEXT] * 7, pa.dictionary(pa.int8(), pa.string())), NUMBERS),
    "bytes": (lambda name: whole(name, [TEXT.encode()] * 7), NAMES),
    "floats": (lambda name: whole(name, [float(NUMBER)] * 7), IDS),
    "timestamps": (lambda name: whole(name, [NUMBER] * 7, pa.timestamp("s")), NAMES),
    "times": (lambda name: whole(name, [NUMBER] * 7, pa.time64("us")), NAMES),
    "decimals": (lambda name: whole(name, [decimal.Decimal(NUMBER)] * 7), NAMES),
    "lists": (lambda name: whole(name, [[NUMBER]] * 7), NAMES),
    "records": (lambda name: whole(name, [{TEXT: NUMBER}] * 7), NAMES),
    "nulls": (lambda name: pa.table(rows() | {name: pa.nulls(7)}), NAMES),
    "not UTF-8": (not_text, IDS),
    "text in another file": (lambda name: second(name, [TEXT] * 3), [name for name in NAMES if name != "patient"]),
    "bytes in another file": (lambda name: second(name, [TEXT.encode()] * 3), NAMES),
    "numbers in another file": (lambda name: second(name, [NUMBER] * 3), ["patient", "gain"]),
    "floats in another file": (lambda name: second(name, [NUMBER + 0.5] * 3), [*IDS, *COUNTED]),
    "wider in another file": (lambda name: second(name, [2**63 + NUMBER] * 3, pa.uint64()), ["stay", *COUNTED]),
    "narrower in another file": (lambda name: second(name, [NUMBER] * 3, pa.int32()), ["stay", *COUNTED]),
    "times in another file": (lambda name: second(name, [NUMBER] * 3, pa.timestamp("s")), NAMES),
    "decimals in another file": (lambda name: second(name, [decimal.Decimal(NUMBER)] * 3), NAMES),
    "step twice": (lambda name: cell(name, NUMBER * 10 - 1), ["hour"]),
    "step skipped": (lambda name: cell(name, NUMBER * 10 + 3, row=6), ["hour"]),
    "too long": (
        lambda name: pa.table(rows() | {"patient": [TEXT] * 7, "stay": [NUMBER] * 7, name: range(NUMBER, NUMBER + 7)}),
        ["hour"],
    ),
    "far steps": (lambda name: whole(name, [2**62 + NUMBER] * 7), ["hour"]),
    "comes back": (comes_back, ["patient"]),
    "goes on": (lambda name: cell(name, 1), ["end"]),
    "column twice": (twice, NAMES),
    "column missing": (lambda name: pa.table(rows()).drop_columns([name]), NAMES),
    "page overwritten": (lambda name: overwritten(name, 0.0, TEXT.encode(), use_dictionary=False), NAMES),
    "values overwritten": (lambda name: overwritten(name, 0.5, b"\xff" * 16, use_dictionary=False), NAMES),
    "dictionary overwritten": (lambda name: overwritten(name, 0.0, TEXT.encode(), use_dictionary=True), NAMES),
    "indices overwritten": (lambda name: overwritten(name, 0.8, b"\xff" * 9, use_dictionary=True), NAMES),
    "truncated": (lambda name: truncated(name, 0.6), ["patient"]),
    "half a footer": (lambda name: truncated(name, 0.97), ["patient"]),
    "footer overwritten": (spoilt_footer, NAMES),
    "no table": (lambda name: (TEXT + str(NUMBER)).encode() * 9, ["patient"]),
    "no table in another file": (
        lambda name: {"a": pa.table(rows()), "b": (TEXT + str(NUMBER)).encode() * 9},
        ["patient"],
    ),
}
# an index that still exists is another person's; and sorting mends what is not grouped
MAY_PASS = {"indices overwritten"}
PASSES_SORTED = {"comes back"}
CASES = [(fault, name) for fault, (_, names) in FAULTS.items() for name in names]
FIRST = [
    pytest.param(fault, name, marks=() if name == FAULTS[fault][1][0] else pytest.mark.slow) for fault, name in CASES
]


def laid_down(folder: Path, content: pa.Table | bytes | Files) -> Path:
    files = content if isinstance(content, dict) else {"only": content}
    for name, file in files.items():
        path = folder / f"{name}.parquet"
        if isinstance(file, bytes):
            path.write_bytes(file)
        else:
            pq.write_table(file, path)
    return folder


def told(error: BaseException | None) -> str:
    """All that can be read off an error, its cause and its context, printed or not."""
    text = ""
    while error is not None:
        text += "".join(traceback.format_exception(error)) + str(error) + repr(error) + repr(error.args)
        assert error.__cause__ is None or error.__context__ is error.__cause__ or error.__context__ is None
        error = error.__cause__ or error.__context__
    return text


def assert_silent(text: str) -> None:
    assert TEXT not in text.lower() and TEXT.encode().hex() not in text.lower()
    assert "918273" not in re.sub(r"[^0-9a-z]", "", text) and f"{NUMBER:x}" not in text.lower()


def learned(data: Any) -> Any:
    learner = APVI(num_states=BOUNDS["num_states"], num_actions=BOUNDS["num_actions"], horizon=BOUNDS["horizon"])
    return privrl.fit(data, learner, privrl.Central(epsilon=1.0, delta=1e-6))


def assert_refused(
    path: Path,
    capfd: Any,
    use: Callable[[Any], Any],
    may_pass: bool,
    columns: dict[str, Any] = COLUMN | BOUNDS,
    **options: Any,
) -> None:
    """Whatever happens on the way, no cell is told; and the fault is found."""
    text, error = "", None
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            data = read_parquet(path, **columns, max_episodes_per_unit=2, **options)
            text += repr(data)
            use(data)
        except Exception as caught:
            error = caught
    assert_silent(text + told(error) + "".join(str(w.message) for w in warned) + "".join(capfd.readouterr()))
    assert isinstance(error, TableError) or (error is None and may_pass)


@pytest.mark.parametrize(("fault", "name"), CASES)
def test_no_check_of_a_table_quotes_a_cell(tmp_path: Path, capfd: Any, fault: str, name: str) -> None:
    path = laid_down(tmp_path, FAULTS[fault][0](name))
    for batch_rows, sort in ((2, False), (1000, True)):
        may_pass = fault in MAY_PASS or (sort and fault in PASSES_SORTED)
        assert_refused(path, capfd, lambda data: data.check(), may_pass, sort=sort, batch_rows=batch_rows)


@pytest.mark.parametrize(("fault", "name"), FIRST)
def test_no_digest_and_no_fit_quotes_a_cell(tmp_path: Path, capfd: Any, fault: str, name: str) -> None:
    path = laid_down(tmp_path, FAULTS[fault][0](name))
    for sort in (False, True):
        may_pass = fault in MAY_PASS or (sort and fault in PASSES_SORTED)
        assert_refused(path, capfd, lambda data: data.digest(bytes(32)), may_pass, sort=sort, batch_rows=3)
        assert_refused(path, capfd, lambda data: data.unit_draws(bytes(32), "halves"), may_pass, sort=sort)
        assert_refused(path, capfd, learned, may_pass, sort=sort)


def arguments(path: Path, out: Path, sort: bool) -> list[str]:
    flags = [f"--{part.replace('_', '-')}={name}" for part, name in COLUMN.items()]
    flags += [f"--{bound.replace('_', '-')}={value}" for bound, value in BOUNDS.items()]
    flags += ["--recipe=dp-apvi", "--epsilon=1", "--delta=1e-6", "--max-episodes-per-unit=2", f"--out={out}"]
    return ["fit", str(path), "--spend-anyway", *flags, *(["--sort"] if sort else [])]


@dataclass(frozen=True)
class Called:
    """What a command printed, and how it failed."""

    output: str
    exception: Exception | None


def called(arguments: list[str]) -> Called:
    printed, failed = io.StringIO(), None
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            root().main(arguments, prog_name="privrl", standalone_mode=False)
        except Exception as error:
            failed = error
    return Called(printed.getvalue(), failed)


@pytest.mark.parametrize("sort", [False, True], ids=["", "sorted"])
@pytest.mark.parametrize(("fault", "name"), FIRST)
def test_the_command_line_quotes_no_cell(
    tmp_path: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch, fault: str, name: str, sort: bool
) -> None:
    (tmp_path / "in").mkdir()
    path = laid_down(tmp_path / "in", FAULTS[fault][0](name))
    out = tmp_path / "out"
    outcome = called(arguments(path, out, sort))
    assert_silent(outcome.output + told(outcome.exception))
    if outcome.exception is None:
        assert fault in MAY_PASS or (sort and fault in PASSES_SORTED)
        return
    assert isinstance(outcome.exception, TableError)
    monkeypatch.setenv("PRIVRL_TRACEBACK", "1")
    capfd.readouterr()
    assert main(arguments(path, out, sort)) == 2
    printed = "".join(capfd.readouterr())
    assert "Traceback" in printed and "Error: " in printed and not out.exists()
    assert_silent(printed)


def test_the_faultless_table_passes(tmp_path: Path) -> None:
    path = laid_down(tmp_path, pa.table(rows()))
    for sort in (False, True):
        data = read_parquet(path, **COLUMN, **BOUNDS, max_episodes_per_unit=2, sort=sort)
        assert data.check().num_episodes == 3
        assert_silent(repr(data))


@pytest.mark.slow
@pytest.mark.parametrize("dictionary", [False, True])
def test_no_damaged_file_is_quoted(tmp_path: Path, capfd: Any, dictionary: bool) -> None:
    raw = written(pa.table(rows()), use_dictionary=dictionary)
    rng = np.random.default_rng(0)
    for _ in range(1500):
        damaged = bytearray(raw)
        at = int(rng.integers(4, len(raw)))
        by = rng.bytes(int(rng.integers(1, 9))) if rng.random() < 0.7 else TEXT.encode()
        damaged[at : at + len(by)] = by
        path = laid_down(tmp_path, bytes(damaged[: len(raw)]))
        sort = bool(rng.random() < 0.5)
        assert_refused(path, capfd, lambda data: data.digest(bytes(32)), True, sort=sort)


MEASURED = ["pulse", "rest", "ward_name", "amount"]
DECLARED: dict[str, Any] = {
    "features": (
        Feature("pulse", 30, 200),
        Feature("rest", 0, 1, missing=True),
        Category("ward_name", ("icu", "step-down")),
    ),
    "action": BinnedAction("amount", (0, 1, 2)),
}


def measured_rows() -> Rows:
    """The faultless table with measurements, which are canaries: values outside their bounds are moved there."""
    columns = {"pulse": [918.273645] * 7, "rest": [None, *[-NUMBER] * 6], "ward_name": ["icu"] * 7}
    return {**{name: cells for name, cells in rows().items() if name not in ("ward", "drug", "after")}, **columns} | {
        "amount": [918273.645] * 7
    }


def measured(name: str, values: Any, dtype: pa.DataType | None = None) -> pa.Table:
    """The table with one column replaced, or with one cell that is not canary text or number."""
    if not isinstance(values, list):
        values = [*measured_rows()[name][:5], values, *measured_rows()[name][6:]]
    return pa.table(measured_rows() | {name: pa.array(values, dtype)})


NUMERIC = ["pulse", "rest", "amount"]
MEASURED_FAULTS: dict[str, tuple[Callable[[str], pa.Table], list[str]]] = {
    "null": (lambda name: measured(name, None), ["pulse", "ward_name", "amount"]),
    "nan": (lambda name: measured(name, float("nan"), pa.float64()), ["pulse", "amount"]),
    "infinite": (lambda name: measured(name, float("inf"), pa.float64()), NUMERIC),
    "minus infinite": (lambda name: measured(name, float("-inf"), pa.float64()), NUMERIC),
    "below the first edge": (lambda name: measured(name, -0.918273645), ["amount"]),
    "no such value": (lambda name: measured(name, TEXT), ["ward_name"]),
    "numbers as values": (lambda name: measured(name, [NUMBER] * 7), ["ward_name"]),
    "text": (lambda name: measured(name, [TEXT] * 7), NUMERIC),
    "digits": (lambda name: measured(name, [str(NUMBER)] * 7), NUMERIC),
    "truths": (lambda name: measured(name, [True] * 7), NUMERIC),
    "timestamps": (lambda name: measured(name, [NUMBER] * 7, pa.timestamp("s", "Asia/Tokyo")), MEASURED),
    "decimals": (lambda name: measured(name, [decimal.Decimal(NUMBER)] * 7), MEASURED),
    "floats as values": (lambda name: measured(name, [float(NUMBER)] * 7), ["ward_name"]),
    "lists": (lambda name: measured(name, [[NUMBER]] * 7), MEASURED),
    "not UTF-8": (
        lambda name: pa.table(
            measured_rows()
            | {name: pa.Array.from_buffers(pa.string(), 7, pa.array([TEXT.encode() + b"\xff"] * 7).buffers())}
        ),
        ["ward_name"],
    ),
    "column twice": (
        lambda name: pa.table([*pa.table(measured_rows()).columns, pa.array([TEXT] * 7)], [*measured_rows(), name]),
        MEASURED,
    ),
    "column missing": (lambda name: pa.table(measured_rows()).drop_columns([name]), MEASURED),
}
MEASURED_COLUMN: dict[str, Any] = {
    **{part: name for part, name in COLUMN.items() if part not in ("state", "action", "next_state")},
    **DECLARED,
    "horizon": BOUNDS["horizon"],
}
MEASURED_CASES = [(fault, name) for fault, (_, names) in MEASURED_FAULTS.items() for name in names]


@pytest.mark.parametrize(("fault", "name"), MEASURED_CASES)
def test_no_check_of_measurements_quotes_a_cell(tmp_path: Path, capfd: Any, fault: str, name: str) -> None:
    path = laid_down(tmp_path, MEASURED_FAULTS[fault][0](name))
    for batch_rows, sort in ((2, False), (1000, True)):
        options = {"sort": sort, "batch_rows": batch_rows}
        assert_refused(path, capfd, lambda data: data.digest(bytes(32)), False, MEASURED_COLUMN, **options)


MEASURED_FIRST = [
    pytest.param(fault, name, marks=() if name == MEASURED_FAULTS[fault][1][0] else pytest.mark.slow)
    for fault, name in MEASURED_CASES
]


@pytest.mark.parametrize(("fault", "name"), MEASURED_FIRST)
def test_the_command_line_quotes_no_measurement(tmp_path: Path, fault: str, name: str) -> None:
    (tmp_path / "in").mkdir()
    path = laid_down(tmp_path / "in", MEASURED_FAULTS[fault][0](name))
    flags = [
        f"--{part}={MEASURED_COLUMN[part]}" for part in ("unit", "episode", "step", "reward", "terminated", "horizon")
    ]
    flags += ["--feature=pulse:30..200", "--feature=rest:0..1:missing", "--category=ward_name:icu,step-down"]
    flags += ["--action=amount", "--action-edges=0,1,2", "--max-episodes-per-unit=2"]
    fit = ["--recipe=dp-lap", "--epsilon=1", "--delta=1e-6", f"--out={tmp_path / 'out'}"]
    outcome = called(["fit", str(path), "--spend-anyway", *flags, *fit])
    assert isinstance(outcome.exception, TableError) and not (tmp_path / "out").exists()
    assert_silent(outcome.output + told(outcome.exception))


def test_faultless_measurements_pass(tmp_path: Path) -> None:
    data = read_parquet(laid_down(tmp_path, pa.table(measured_rows())), **MEASURED_COLUMN, max_episodes_per_unit=2)
    assert data.check().num_episodes == 3 and next(data.batches(3)).states[0, 0].tolist()[0] == 200.0
    assert_silent(repr(data))


GRID = np.zeros((2, 1), int)
CALLS: dict[str, Callable[[], Any]] = {
    "ragged": lambda: Episodes.from_arrays([[NUMBER], [NUMBER, NUMBER]], GRID, GRID, **BOUNDS),
    "mixed": lambda: Episodes.from_arrays([[NUMBER], [TEXT]], GRID, GRID, **BOUNDS),
    "huge": lambda: Episodes.from_arrays([[2**70 + NUMBER], [0]], GRID, GRID, **BOUNDS),
    "text": lambda: Episodes.from_arrays(GRID, GRID, [[TEXT], [TEXT]], **BOUNDS),
    "measurements": lambda: Episodes.from_arrays(
        np.full((2, 1, 1), TEXT), GRID, GRID, horizon=1, num_actions=2, features=(Feature("x", 0, 1),)
    ),
    "infinite measurements": lambda: Episodes.from_arrays(
        [[[float(NUMBER)]], [[float("inf")]]], GRID, GRID, horizon=1, num_actions=2, features=(Feature("x", 0, 1),)
    ),
    "lengths": lambda: Episodes.from_arrays(GRID, GRID, GRID, lengths=[TEXT, NUMBER], **BOUNDS),
    "units": lambda: Episodes.from_arrays(GRID, GRID, GRID, units=[TEXT, {TEXT: NUMBER}], **BOUNDS),
    "function": lambda: RewardFunction([TEXT, NUMBER]),
    "function in text": lambda: RewardFunction.from_function(lambda x: [f"{TEXT}{NUMBER}"] * len(x)),
    "names": lambda: write_parquet("never.parquet", TWO, [TEXT, NUMBER, None][1:]),
    "objects": lambda: write_parquet("never.parquet", TWO, np.array([{TEXT}, {NUMBER}], object)),
}
TWO = Trajectory(GRID, GRID, GRID * 0.5, GRID, np.ones(2, int))


@pytest.mark.parametrize("call", CALLS)
def test_what_comes_from_memory_is_not_quoted_either(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError) as caught:
        CALLS[call]()
    assert_silent(told(caught.value))
    assert not list(tmp_path.iterdir())
