"""A soak runs the random tests from new seeds, and prints how to replay a failure."""

from __future__ import annotations

from tests.soak.parts import PARTS
from tests.soak.random_tests import PROCESSES, Round, files_of_hypothesis, replay
from tests.support.gateway_process import REPOSITORY

FAILED = "F.\nFAILED tests/a/test_b.py::test_c[d] - AssertionError\n1 failed, 1 passed in 0.10s\n"


def test_the_files_are_there() -> None:
    files = files_of_hypothesis()
    assert "tests/gateway/coordinator/transaction/test_model.py" in files
    assert all((REPOSITORY / file).is_file() for file in (*files, *PROCESSES))
    assert all("chosen_seed()" in (REPOSITORY / file).read_text() for file in PROCESSES)


def test_a_failure_says_how_to_replay_it() -> None:
    one = Round(7, ("tests/a/test_b.py",), 1, FAILED)
    assert one.counts() == {"tests failed": 1, "tests passed": 1}
    (breach,) = one.breaches()
    test, _, command = breach.partition(" failed; again: ")
    assert test == "tests/a/test_b.py::test_c[d]"
    assert command.startswith("SEQGATE_TEST_SEED=7 PYTHONHASHSEED=7 python -m pytest ")
    assert command.endswith(f" --hypothesis-profile soak --hypothesis-seed 7 {test}")


def test_a_run_that_says_nothing_is_a_failure_of_its_files() -> None:
    one = Round(7, ("tests/a/test_b.py",), 2, "")
    assert one.breaches() == [f"tests/a/test_b.py failed; again: {replay(7, one.files)}"]


def test_sound_rounds_have_no_breach() -> None:
    assert Round(7, ("tests/a/test_b.py",), 0, "2 passed in 0.10s\n").breaches() == []


def test_all_parts_have_a_module() -> None:
    for part in PARTS:
        path = REPOSITORY / part.module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), part.module
