"""Inputs that take too much processor time or memory are detected."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from tests.fuzzing.limits import check, check_work
from tests.fuzzing.target import Breach, Run, Target

TARGET = cast("Target", SimpleNamespace(BASE_WORK=20.0, PEAK_BYTES=16 << 20, MAX_INPUT_BYTES=1000))


def linear(data: bytes) -> None:
    for byte in data:
        hash(byte)


def quadratic(data: bytes) -> None:
    for _ in data:
        linear(data)


def hungry(data: bytes) -> None:
    memory = bytearray(64 << 20)
    memory[:: 1 << 12] = b"\x01" * len(memory[:: 1 << 12])


def test_work_in_proportion_is_fine() -> None:
    check(TARGET, linear, bytes(5000))


@pytest.mark.parametrize(("run", "words"), [(quadratic, "units of work"), (hungry, "grow by")])
def test_more_is_a_breach(run: Run, words: str) -> None:
    with pytest.raises(Breach, match=words):
        check(TARGET, run, bytes(5000))


def test_what_takes_long_once_is_forgiven() -> None:
    runs = []

    def slow_at_first(data: bytes) -> None:
        runs.append(data)
        if len(runs) == 1:
            quadratic(data)

    check_work(TARGET, slow_at_first, bytes(5000))
    assert len(runs) == 2
