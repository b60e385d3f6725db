"""All kept inputs run through their targets: faults found earlier stay fixed, on every Python version."""

from __future__ import annotations

import logging

import pytest

from tests.fuzzing import corpus
from tests.fuzzing.limits import check
from tests.fuzzing.target import load
from tests.fuzzing.targets import NAMES

MOST_CORPUS_BYTES = 500_000


@pytest.mark.parametrize("name", NAMES)
def test_replay(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    target = load(name)
    with target.opened() as run:
        for data in [*target.seeds(), *corpus.kept(name)]:
            try:
                check(target, run, data)
            except Exception as error:
                raise AssertionError(f"broken by {corpus.line_of(data)}") from error


def test_every_target_has_its_inputs() -> None:
    assert sorted(path.stem for path in corpus.DIRECTORY.iterdir()) == sorted(NAMES)
    for name in NAMES:
        inputs = list(corpus.kept(name))
        assert inputs
        assert len(set(inputs)) == len(inputs)


def test_the_inputs_stay_few() -> None:
    assert sum(path.stat().st_size for path in corpus.DIRECTORY.iterdir()) < MOST_CORPUS_BYTES
