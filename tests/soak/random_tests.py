"""Runs the random tests of `make test` from new seeds: `python -m tests.soak.random_tests --seconds 60 --seed
1`.

A round is one seed. Even rounds run the tests of Hypothesis, odd ones a test of killed processes, one after
the other. Each failure is printed with the command that replays it. The last line on stdout is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from itertools import count
from typing import NamedTuple

from tests.support.gateway_process import REPOSITORY
from tests.support.seeds import FRESH_PROFILE, SEED_VARIABLE, fresh_seed

TESTS = REPOSITORY / "tests"
PROCESSES = (
    "tests/faults/kill/test_kill_nine.py",
    "tests/faults/kill/test_kill_nine_retention.py",
    "tests/properties/test_backup_model.py",
    "tests/compat/transactions/test_exactly_once.py",
    "tests/compat/databases/test_database_reader_killed.py",
)
"""The tests that ask for `chosen_seed` and that no other part of a soak runs."""
HASH_SEEDS = 2**32
_HYPOTHESIS = re.compile(r"^from hypothesis", re.MULTILINE)
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_COUNTED = re.compile(r"(\d+) (passed|failed|errors?)\b")


class Round(NamedTuple):
    """The tests of one seed, with pytest's report."""

    seed: int
    files: tuple[str, ...]
    status: int
    said: str

    def counts(self) -> Counter[str]:
        """Return the numbers of passed, failed and other tests, from pytest's last line."""
        last = self.said.rstrip().rpartition("\n")[2]
        return Counter({f"tests {how.rstrip('s')}": int(number) for number, how in _COUNTED.findall(last)})

    def breaches(self) -> list[str]:
        """Return a sentence for each test that failed, with the command that replays it."""
        if not self.status:
            return []
        failed = _FAILED.findall(self.said) or list(self.files)
        return [f"{test} failed; again: {replay(self.seed, (test,))}" for test in failed]


def files_of_hypothesis() -> tuple[str, ...]:
    """Return the test files with examples of Hypothesis, in order."""
    return tuple(
        str(path.relative_to(REPOSITORY))
        for path in sorted(TESTS.rglob("test_*.py"))
        if _HYPOTHESIS.search(path.read_text())
    )


def variables(seed: int) -> dict[str, str]:
    """Return the environment variables for a run of the tests from this seed."""
    return {SEED_VARIABLE: str(seed), "PYTHONHASHSEED": str(seed % HASH_SEEDS)}


def arguments_for(seed: int, tests: tuple[str, ...]) -> list[str]:
    """Return the arguments with which Python runs these tests from this seed."""
    chosen = ["--hypothesis-profile", FRESH_PROFILE, "--hypothesis-seed", str(seed)]
    return ["-m", "pytest", "-q", *chosen, *tests]


def replay(seed: int, tests: tuple[str, ...]) -> str:
    """Return the shell command that runs these tests from this seed."""
    given = " ".join(f"{name}={value}" for name, value in variables(seed).items())
    return f"{given} python {' '.join(arguments_for(seed, tests))}"


def run(seed: int, files: tuple[str, ...]) -> Round:
    """Run one round to its end; return its result."""
    done = subprocess.run(
        [sys.executable, *arguments_for(seed, files)],
        cwd=REPOSITORY,
        env={**os.environ, **variables(seed)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return Round(seed, files, done.returncode, done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.random_tests", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="begin no further round after this many seconds"
    )
    parser.add_argument(
        "--seed", type=int, default=fresh_seed(), help="seed of the first round; each further round adds 1"
    )
    given = parser.parse_args()
    deadline_s = time.monotonic() + given.seconds
    counts: Counter[str] = Counter()
    breaches: list[str] = []
    for number in count():
        if number and (time.monotonic() >= deadline_s or breaches):
            break
        files = (PROCESSES[number // 2 % len(PROCESSES)],) if number % 2 else files_of_hypothesis()
        one = run(given.seed + number, files)
        counts += one.counts()
        counts["rounds"] += 1
        if one.status:
            print(one.said, flush=True)
        breaches += one.breaches()
    print(json.dumps({"part": "random tests", "counts": counts, "breaches": breaches}))
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
