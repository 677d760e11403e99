"""Fuzzes the readers of saved files: any JSON in any field is read, or refused with one `ValueError`."""

import copy
import functools
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path as File
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import tiny_data, tiny_world
from hypothesis import given, settings
from hypothesis import strategies as st

import privrl
from privrl.contracts.untrusted import read_json, read_npz
from privrl.data.schema.table_description import TableDescription
from privrl.evaluation.estimates import Evaluation
from privrl.privacy.accounting.certificate import Certificate, read_certificate
from privrl.reports.result_page import render_result
from privrl.studies.results.binding import SavedFiles, hash_files
from privrl.studies.results.certification import certify
from privrl.studies.results.result import Result
from privrl.studies.results.saved_policies import read_policy

Path = tuple[str | int, ...]
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**15) | st.floats() | st.text(max_size=5) | st.just("inf"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@functools.cache
def made() -> Result:
    world = tiny_world()
    people, learner = tiny_data(world, 60), privrl.APVI(3, 2, world.horizon)
    budget, practice = privrl.Central(epsilon=2.0, delta=1e-5), jnp.full((3, 2), 0.5)
    return privrl.fit(people, learner, budget, evaluate=0.5, practice=practice, key=jax.random.key(0))


@functools.cache
def contents(file: str) -> Any:
    result = made()
    if file == "certificate":
        return result.certificate.to_json()
    return json.loads(result.contents()[file])


def places(content: Any, path: Path = ()) -> Iterator[Path]:
    """Every field of JSON, the whole included."""
    yield path
    if isinstance(content, dict):
        for name, value in content.items():
            yield from places(value, (*path, name))
    elif isinstance(content, list):
        for i, value in enumerate(content[:3]):
            yield from places(value, (*path, i))


def replaced(content: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    changed = copy.deepcopy(content)
    inner = functools.reduce(lambda one, key: one[key], path[:-1], changed)
    inner[path[-1]] = value
    return changed


def fuzzed(draw: Any, file: str) -> str:
    content = contents(file)
    path = draw(st.sampled_from(list(places(content))))
    return json.dumps(replaced(content, path, draw(ANY)))


def refusal(read: Callable[[], Any]) -> str:
    """Why something is refused; nothing if it is read. Any exception but a `ValueError` fails the test."""
    try:
        read()
    except ValueError as error:
        return str(error)
    return ""


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_any_field_of_a_certificate(data: Any) -> None:
    """A certificate that is read is checked without an exception, and printed without control characters."""
    text = fuzzed(data.draw, "certificate")
    if why := refusal(lambda: read_certificate(text)):
        assert why.startswith("The certificate is malformed")
        return
    certificate = read_certificate(text)
    certify(certificate, made().policy, max_epsilon=1.0, allow_non_private=True)
    assert all(line.isprintable() for line in str(certificate).split("\n"))


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_any_field_of_an_evaluation(data: Any) -> None:
    text = fuzzed(data.draw, "evaluation.json")
    if why := refusal(lambda: Evaluation.from_json(read_json(text, "The evaluation"))):
        assert why.startswith("The evaluation ")
        return
    evaluation = Evaluation.from_json(read_json(text, "The evaluation"))
    assert evaluation.words and evaluation.line


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_any_field_of_a_report(data: Any) -> None:
    """The certificate of the folder names this report: anyone can write such a folder."""
    files = {**made().contents(), "report.json": fuzzed(data.draw, "report.json").encode()}
    certificate = Certificate.from_json({**made().certificate.to_json(), "files": hash_files(files)})
    saved = SavedFiles(File("policy"), files, certificate, None)

    def read() -> None:
        result = Result.from_files(saved)
        TableDescription().completed_by(result.report.get("table", {}), "`table`")

    why = refusal(read)
    assert not why or "malformed" in why


@given(known=st.dictionaries(st.sampled_from(["unit", "horizon", "feature", "sort", "terminal", "x"]), ANY))
@settings(max_examples=100, deadline=None)
def test_any_table_of_a_report(known: dict[str, Any]) -> None:
    why = refusal(lambda: TableDescription(unit="id").completed_by(known, "`table`"))
    assert not why or "`table` is malformed" in why or "says" in why


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_any_byte_of_an_archive(data: Any) -> None:
    content = bytearray(made().contents()["policy.npz"])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    for damaged in (bytes(content), bytes(content[:cut])):
        why = refusal(functools.partial(read_policy, damaged, "`policy.npz`"))
        assert not why or "`policy.npz`" in why


@given(
    shape=st.lists(st.integers(0, 3), max_size=4),
    dtype=st.sampled_from(["f8", "f4", "i8", "u1", "?", "U3", "c16", "S2", "M8[s]"]),
    name=st.sampled_from(["probabilities", "advice", "gains", "x"]),
)
@settings(max_examples=100, deadline=None)
def test_any_array_in_the_place_of_a_policy(shape: list[int], dtype: str, name: str) -> None:
    file = io.BytesIO()
    np.savez(file, **{name: np.zeros(shape, dtype)})
    why = refusal(lambda: read_policy(file.getvalue(), "`policy.npz`"))
    assert "`policy.npz`" in why if why else name == "probabilities" and len(shape) == 3


def test_arrays_are_read_as_numpy_writes_them(tmp_path: File) -> None:
    arrays = {
        "c": np.arange(6.0).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "big": np.arange(3, dtype=">i4"),
        "one": np.asarray(1.5),
        "none": np.zeros((0, 4)),
        "text": np.asarray("function"),
    }
    for write in (np.savez, np.savez_compressed):
        write(tmp_path / "arrays.npz", **arrays)
        found = read_npz((tmp_path / "arrays.npz").read_bytes(), "It")
        assert set(found) == set(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array)
            assert found[name].dtype == array.dtype.newbyteorder("=") and found[name].shape == array.shape


@pytest.mark.slow
@pytest.mark.parametrize("file", ["certificate", "report.json", "evaluation.json"])
@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_any_folder_that_is_read_is_shown(file: str, data: Any) -> None:
    """A folder whose certificate names its files is refused when it is read, or has a page."""
    text, files, certificate = fuzzed(data.draw, file), made().contents(), made().certificate.to_json()

    def read() -> Result:
        written = json.loads(text) if file == "certificate" else certificate
        contents = files if file == "certificate" else {**files, file: text.encode()}
        named = {**written, "files": hash_files(contents)} if isinstance(written, dict) else written
        return Result.from_files(SavedFiles(File("policy"), contents, Certificate.from_json(named), None))

    if not refusal(read):
        assert render_result(read(), "policy").startswith("<!DOCTYPE html>")
