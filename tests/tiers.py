"""Says which command runs which tests, and runs them: `python -m tests.tiers test`, with further arguments
for pytest.

There are three tiers, and each test belongs to one. `make test` runs what a user relies on, `make test-all`
the rest that a change can break, `make test-nightly` searches, other languages, pages, examples and releases.
`TIERS` gives each file the tier of the longest path that it begins with. Single tests and cases of other
tiers say so themselves: a test by `@pytest.mark.tier("nightly")`, cases by `in_tiers`. `python -m
tests.tiers` prints the tier of each file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.reaper import run

REPOSITORY: Final = Path(__file__).resolve().parents[1]
TESTS: Final = REPOSITORY / "tests"

TIERS: Final[Mapping[str, Sequence[str]]] = {
    "test": (
        "compat/clients/test_aiokafka.py",
        "compat/clients/test_confluent_kafka.py",
        "compat/clients/test_kafka_python.py",
        "gateway",
        "log",
        "pid_allocator",
        "seq_validator",
        "spark_kafka_compat",
        "system/commands/test_start.py",
        "test_core.py",
        "test_links.py",
        "test_pages.py",
        "test_reaper.py",
        "test_structure.py",
        "test_tiers.py",
    ),
    "all": (
        "compat",
        "faults",
        "fuzzing",
        "properties",
        "simulation",
        "system",
        "test_architecture.py",
        "test_comparison.py",
        "upgrade",
    ),
    "nightly": (
        "compat/certify",
        "compat/examples",
        "compat/testing/test_other_languages.py",
        "docs",
        "fuzzing/test_guided.py",
        "fuzzing/test_planted_faults.py",
        "performance",
        "simulation/test_plant.py",
        "simulation/test_planted.py",
        "soak",
        "system/certify",
        "system/deployment",
        "system/metrics/test_prometheus.py",
        "system/test_distribution.py",
        "upgrade/test_previous_release.py",
        "upgrade/test_rolling_upgrade.py",
    ),
}
"""The files and folders of each tier, below `tests`."""

LIMIT_S: Final[Mapping[str, int]] = {"nightly": 4 * 3600}
"""The time that a single test may take, where it is not that of `pyproject.toml`: hunts and builds take hours
on a slow machine.
"""
MARK: Final = "tier"
SAYS_SO: Final = ("mark.tier(", "_tiers(")
"""What the source of a file contains if some of its tests belong to another tier than the file."""


def in_tiers(cases: Iterable[Any], **tiers: Collection[Any]) -> list[Any]:
    """Return the cases as parameters of a test. Those in `tiers` get this tier instead of the test's own.

    `in_tiers(LIBRARIES, test=["confluent-kafka"])`: one library in `make test`, the others where the file
    belongs.
    """
    assert tiers.keys() <= TIERS.keys(), f"no tier of this name: {sorted(tiers.keys() - TIERS.keys())}"

    def parameters(case: Any) -> Any:
        values = case if isinstance(case, tuple) else (case,)
        return pytest.param(
            *values, marks=[pytest.mark.tier(name) for name, chosen in tiers.items() if case in chosen]
        )

    return [parameters(case) for case in cases]


def tier_of_file(path: Path) -> str:
    """Return the tier of a file. Raises UsageError where `TIERS` has none."""
    name = path.relative_to(TESTS).as_posix()
    entries = {entry: tier for tier, listed in TIERS.items() for entry in listed}
    fitting = [entry for entry in entries if name == entry or name.startswith(f"{entry}/")]
    if not fitting:
        raise pytest.UsageError(f"{path} has no tier: add its folder or the file to TIERS in {__file__}")
    return entries[max(fitting, key=len)]


def tier_of(item: pytest.Item) -> str:
    """Return the tier of a test: its own, or else that of its file. Raises UsageError for an unknown tier and
    for two.
    """
    own = {mark.args[0] for mark in item.iter_markers(MARK)}
    if len(own) > 1 or not own <= TIERS.keys():
        raise pytest.UsageError(f"{item.nodeid} has the tiers {sorted(own)}, not one of {', '.join(TIERS)}")
    return own.pop() if own else tier_of_file(item.path)


def files() -> list[Path]:
    """Return all files with tests."""
    return sorted(TESTS.rglob("test_*.py"))


def paths_of(tier: str) -> list[str]:
    """Return what pytest has to collect for a tier: its files, and those in which single tests belong to it."""
    return [
        path.relative_to(REPOSITORY).as_posix()
        for path in files()
        if tier_of_file(path) == tier or _may_name(tier, path.read_text(encoding="utf-8"))
    ]


def _may_name(tier: str, source: str) -> bool:
    """Return whether the source of a file may give the tier to single tests: it names the tier as text or as
    an argument.
    """
    return any(words in source for words in SAYS_SO) and (f'"{tier}"' in source or f"{tier}=" in source)


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave only the tests of the tier that `--tier` names."""
    chosen = config.getoption("--tier")
    if chosen is None:
        return
    others = [item for item in items if tier_of(item) != chosen]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if tier_of(item) == chosen]


def main(arguments: Sequence[str]) -> int:
    """Run the tests of a tier; without arguments print the tier of each file. Return the exit status."""
    if not arguments:
        for path in files():
            print(f"{tier_of_file(path):8} {path.relative_to(REPOSITORY)}")
        return 0
    tier, *options = arguments
    if tier not in TIERS:
        print(f"there is no tier {tier!r}: name one of {', '.join(TIERS)}", file=sys.stderr)
        return 2
    limits = [f"--timeout={LIMIT_S[tier]}"] if tier in LIMIT_S else []
    command = [sys.executable, "-m", "pytest", f"--tier={tier}", *limits, *options, *paths_of(tier)]
    os.chdir(REPOSITORY)
    return run(command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
