"""Find the functions of privrl that one person's row passes through, by running them twice.

The same program runs in two worlds that differ in one person's row, with the same randomness. Compiled functions are
run line by line (`jax.disable_jit`), and every call of a function of `src/privrl` is recorded. The row passes through a
function if the function's result differs between the worlds. Numbers, arrays and bytes are compared, and structures
made of them (tuples, dictionaries, dataclasses, structs, pytrees, columns of a table). Text is not compared, and other
objects are not opened.
"""

import dataclasses
import hashlib
import os
import random
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
import pytest

import privrl

SOURCE = str(Path(privrl.__file__).parent) + os.sep
_PART_OF_A_LINE = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "__del__"}
_NEVER = sys.maxsize

Function = tuple[str, str]
"""A file of `src/privrl` and a function in it. A nested function is part of the function around it."""


@dataclasses.dataclass
class Call:
    """One call of a function: its caller, when it began and ended, and digests of its arguments and its result."""

    function: Function
    caller: "Call | None"
    begun: int
    given: list[bytes]
    ended: int = _NEVER
    result: bytes = b""
    reached: int = _NEVER
    """When the row first reached the call: with its arguments, or with the result of a function that it called."""


@dataclasses.dataclass(frozen=True)
class Walk:
    """The functions that the row passes through, in the order in which it reaches them, and the calls that step back.

    A file is left when the row has reached a file further down the list and no function of the file that has the row is
    still running. A call of a function of the walk in a file that was left is a step back.
    """

    functions: tuple[Function, ...]
    steps_back: tuple[Function, ...]

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(file for file, _ in self.functions))

    def to_markdown(self) -> str:
        """Format the walk as a section of `docs/evidence/walks.md`."""
        lines = [
            f"{number}. `{file}`: {', '.join(f'`{name}`' for at, name in self.functions if at == file)}"
            for number, file in enumerate(self.files, 1)
        ]
        back = ", ".join(f"`{file}` (`{name}`)" for file, name in self.steps_back)
        return "\n".join([*lines, "", f"Steps back ({len(self.steps_back)}): {back or 'none'}."])


def walk_of(act: Callable[[int], object], monkeypatch: pytest.MonkeyPatch) -> Walk:
    """Follow what differs between `act(0)` and `act(1)`."""
    with jax.disable_jit():
        _alike(act, monkeypatch)(0)  # fills caches
    again, one, other = (_calls(_alike(act, monkeypatch), world) for world in (0, 0, 1))
    # Results that differ between two runs of the same world, such as numbers of open files, do not follow the row.
    unsteady = {call.function for call, mate in _paired(one, again) if mate is None or call.result != mate.result}
    passed = [
        call
        for call, mate in _paired(one, other)
        if call.function not in unsteady and (mate is None or call.result != mate.result)
    ]
    for call, mate in _paired(one, other):
        if mate is None or call.given != mate.given:
            call.reached = min(call.reached, call.begun)
    for call in passed:
        call.reached = min(call.reached, call.ended)
        if call.caller is not None:
            call.caller.reached = min(call.caller.reached, call.ended)
    passed.sort(key=lambda call: call.reached)
    steps = {(call.function, call.result): call for call in reversed(passed)}  # a repeated result adds no step
    calls = sorted(steps.values(), key=lambda call: call.reached)
    got_to: dict[str, int] = {}
    for call in calls:
        got_to.setdefault(call.function[0], call.reached)
    back = [call.function for call in calls if _left(call, got_to)]
    return Walk(tuple(dict.fromkeys(call.function for call in calls)), tuple(dict.fromkeys(back)))


def _left(call: Call, got_to: dict[str, int]) -> bool:
    """Whether the file of a call was left when the call began."""
    file = call.function[0]
    above = call.caller
    while above is not None:
        if above.function[0] == file and above.reached <= call.begun:
            return False
        above = above.caller
    return any(got_to[file] < further < call.begun for further in got_to.values())


def _alike(act: Callable[[int], object], monkeypatch: pytest.MonkeyPatch) -> Callable[[int], object]:
    """Give `act` the same randomness of the operating system and the same date in every call."""

    class Clock:
        @staticmethod
        def now(zone: Any) -> datetime:
            return datetime(2026, 1, 1, tzinfo=UTC)

    def alike(world: int) -> object:
        words = random.Random(0)
        with monkeypatch.context() as patch:
            patch.setattr(os, "urandom", words.randbytes)
            patch.setattr(random, "_urandom", words.randbytes)  # the source of `secrets`
            for module in ("privrl.privacy.store.engine", "privrl.studies.study"):
                patch.setattr(f"{module}.datetime", Clock)
            return act(world)

    return alike


def _calls(act: Callable[[int], object], world: int) -> list[Call]:
    """Record every call of a function of privrl, in the order in which they begin."""
    calls: list[Call] = []
    running: list[Call] = []
    moment = 0
    looking = False

    def look(frame: Any, event: str, result: Any) -> None:
        nonlocal moment, looking
        code = frame.f_code
        ours = code.co_filename.startswith(SOURCE) and code.co_name not in _PART_OF_A_LINE
        if looking or not ours or event not in ("call", "return"):
            return
        looking, moment = True, moment + 1
        if event == "call":
            function = code.co_filename[len(SOURCE) :], code.co_qualname.split(".<locals>")[0]
            calls.append(Call(function, running[-1] if running else None, moment, _given(frame)))
            running.append(calls[-1])
        else:
            ended = running.pop()
            ended.ended, ended.result = moment, _digest(result)
        looking = False

    with jax.disable_jit():
        sys.setprofile(look)
        try:
            act(world)
        finally:
            sys.setprofile(None)
    return calls


def _paired(one: list[Call], other: list[Call]) -> list[tuple[Call, Call | None]]:
    """Pair each call of one world with the call of the other that has the same place in the tree of calls."""
    mates = dict(zip(_places(other), other, strict=True))
    return [(call, mates.get(place)) for call, place in zip(one, _places(one), strict=True)]


def _places(calls: list[Call]) -> list[bytes]:
    often: Counter[tuple[bytes, Function]] = Counter()
    places: dict[int, bytes] = {}
    for call in calls:
        inside = (b"" if call.caller is None else places[id(call.caller)]), call.function
        often[inside] += 1
        places[id(call)] = hashlib.blake2b(repr((*inside, often[inside])).encode(), digest_size=16).digest()
    return list(places.values())


def _given(frame: Any) -> list[bytes]:
    code = frame.f_code
    number = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    return [_digest(frame.f_locals.get(name)) for name in code.co_varnames[:number]]


def _digest(value: Any) -> bytes:
    return hashlib.blake2b(_content(value), digest_size=16).digest()


def _content(value: Any) -> bytes:
    if isinstance(value, jax.core.Tracer):  # a batch of `vmap` holds its numbers, a shape without numbers does not
        return _content(value.val) if hasattr(value, "val") else b""
    if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        with jax.ensure_compile_time_eval():
            value = jax.random.key_data(value)
    if isinstance(value, (jax.Array, np.ndarray)):
        array = np.asarray(value)
        return repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
    if isinstance(value, (bytes, bytearray, int, float, np.generic)):
        return repr(value).encode()
    if isinstance(value, (tuple, list)):
        return b"(" + b",".join(map(_content, value)) + b")"
    if isinstance(value, dict):
        return _content([(key, value[key]) for key in value])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _content([getattr(value, field.name, None) for field in dataclasses.fields(value)])
    if isinstance(value, msgspec.Struct):
        return _content(msgspec.structs.astuple(value))
    if type(value).__module__.startswith("pyarrow") and hasattr(value, "to_pylist"):
        return repr(value.to_pylist()).encode()
    return b""
