"""Freed memory goes back to the operating system at the right time."""

from __future__ import annotations

import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.runtime.upkeep.background_jobs import GIVE_BACK_AFTER, FreedMemory, shrink
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import open_node


@pytest.mark.tier("all")
def test_it_waits_for_the_end_of_many_deletions() -> None:
    freed = FreedMemory()
    assert not freed.give_back_if_due(GIVE_BACK_AFTER, 0), "more partitions may be deleted soon"
    assert not freed.give_back_if_due(GIVE_BACK_AFTER, 7), (
        "the files of the deleted partitions still wait for deletion"
    )
    assert freed.give_back_if_due(GIVE_BACK_AFTER, 0)
    assert not freed.give_back_if_due(GIVE_BACK_AFTER, 0), "the memory must be given back only once"


def test_a_few_deletions_are_not_worth_it_until_they_are_many() -> None:
    freed = FreedMemory()
    given_back = [freed.give_back_if_due(closed, 0) for closed in (100, 100, 300, 300, 500, 500, 700, 700)]
    assert given_back == [False] * 5 + [True] + [False] * 2


@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_a_table_that_lost_most_of_its_entries_is_rebuilt(kind: type[dict[int, int]]) -> None:
    table = kind((number, -number) for number in range(5_000))
    fullest_bytes = sys.getsizeof(table)
    for number in range(4_990):
        del table[number]
    freed = FreedMemory([table])
    freed.give_back_if_due(GIVE_BACK_AFTER, 0)
    assert freed.give_back_if_due(GIVE_BACK_AFTER, 0)
    assert list(table.items()) == [(number, -number) for number in range(4_990, 5_000)]
    assert sys.getsizeof(table) < fullest_bytes / 50


def test_a_full_table_stays_as_it_is() -> None:
    table = {number: -number for number in range(5_000)}
    size_bytes = sys.getsizeof(table)
    shrink(table)
    assert sys.getsizeof(table) == size_bytes
    assert len(table) == 5_000


async def test_the_tables_of_topics_are_known(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        await create(node, "flights")
        partitions = node.services.partitions.registry
        assert partitions.get("flights", 0) is not None
        keys: list[Any] = [key for table in partitions.tables for key in table]
        topic_id = partitions.by_name["flights"].topic_id
    # by name: the registry twice, the image twice, the policies; by id: the registry and the image; the open
    # log
    assert (keys.count("flights"), keys.count(topic_id), keys.count(("flights", 0))) == (5, 2, 1)
