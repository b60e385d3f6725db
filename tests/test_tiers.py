"""Each test file has one tier, no entry of the table is stale, and each test runs in one tier only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.tiers import TESTS, TIERS, files, in_tiers, paths_of, select, tier_of, tier_of_file


def collected(file: str, *marks: pytest.MarkDecorator) -> Any:
    """Return a test as pytest collects it, as far as `tests/tiers.py` looks at it."""
    return SimpleNamespace(
        nodeid=file, path=TESTS / file, iter_markers=lambda _: [mark.mark for mark in marks]
    )


def test_every_entry_is_there_and_has_a_file_of_its_own() -> None:
    entries = [entry for listed in TIERS.values() for entry in listed]
    assert len(set(entries)) == len(entries)
    tiers = {path.relative_to(TESTS).as_posix(): tier_of_file(path) for path in files()}
    for tier, listed in TIERS.items():
        for entry in listed:
            below = [name for name in tiers if name == entry or name.startswith(f"{entry}/")]
            assert any(tiers[name] == tier for name in below), f"{entry} has no test file in {tier}"


def test_a_file_without_a_tier_is_refused() -> None:
    with pytest.raises(pytest.UsageError, match="has no tier: add its folder"):
        tier_of_file(TESTS / "new_folder" / "test_new.py")


def test_the_longest_path_counts() -> None:
    assert tier_of_file(TESTS / "compat" / "examples" / "test_outbox.py") == "nightly"
    assert tier_of_file(TESTS / "compat" / "examples_too" / "test_outbox.py") == "all"


def test_a_test_has_the_tier_that_it_names_or_that_of_its_file() -> None:
    assert tier_of(collected("gateway/test_gateway.py")) == "test"
    assert tier_of(collected("gateway/test_gateway.py", pytest.mark.tier("nightly"))) == "nightly"


@pytest.mark.parametrize("names", [("test", "all"), ("weekly",)])
def test_two_tiers_and_unknown_ones_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(pytest.UsageError, match="not one of test, all, nightly"):
        tier_of(collected("gateway/test_gateway.py", *map(pytest.mark.tier, names)))


def test_cases_have_the_tiers_that_are_given() -> None:
    found = [(case.values[0], [mark.args[0] for mark in case.marks]) for case in in_tiers("abc", all="b")]
    assert found == [("a", []), ("b", ["all"]), ("c", [])]
    with pytest.raises(AssertionError, match="no tier of this name"):
        in_tiers("abc", weekly="a")


@pytest.mark.parametrize("tier", [None, *TIERS])
def test_every_test_is_selected_by_its_tier_only(tier: str | None) -> None:
    items = [collected("gateway/test_gateway.py", pytest.mark.tier(name)) for name in TIERS]
    left: list[Any] = list(items)
    deselected: list[Any] = []
    hook = SimpleNamespace(pytest_deselected=lambda *, items: deselected.extend(items))
    config: Any = SimpleNamespace(getoption=lambda _: tier, hook=hook)
    select(config, left)
    assert left == [item for name, item in zip(TIERS, items, strict=True) if tier in {None, name}]
    assert sorted(map(id, [*left, *deselected])) == sorted(map(id, items))


def test_a_tier_collects_the_files_with_single_tests_of_it() -> None:
    assert "tests/test_tiers.py" in paths_of("nightly"), "this file names tiers"
    assert "tests/gateway/test_durations.py" in paths_of("test")
    assert "tests/gateway/test_durations.py" not in paths_of("all")
