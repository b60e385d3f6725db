"""A request that names a thing several times gets as many answers, as in Kafka, unless it names very many
things. One that names many things lets others work meanwhile.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.handlers import APIS
from seqgate.gateway.handlers.answering.limits import (
    REPEATING_MAX_NAMED,
    answer_each,
    places_to_answer,
    to_answer,
)
from seqgate.gateway.runtime.loop import slices
from tests.gateway.handlers.rights import Rights
from tests.gateway.handlers.support import open_node

MANY = REPEATING_MAX_NAMED + 1


def test_a_short_request_gets_an_answer_for_each_mention_of_a_name() -> None:
    named = ("b", "a") * (REPEATING_MAX_NAMED // 2)
    assert to_answer(named) == named


def test_a_long_request_gets_one_answer_for_each_name() -> None:
    named = [*((number % 2, number) for number in range(MANY)), (7, 7)]
    assert to_answer(named, lambda pair: pair[0]) == ((0, 0), (1, 1), (7, 7))


async def test_the_answer_of_a_repeated_name_is_computed_once() -> None:
    worked_out: list[str] = []

    def answer(name: str) -> list[str]:
        worked_out.append(name)
        return [name]

    answers = await answer_each(("b", "a", "b"), answer)
    assert answers == (["b"], ["a"], ["b"])
    assert answers[0] is answers[2]
    assert worked_out == ["b", "a"]


async def test_a_long_request_gets_each_answer_once() -> None:
    assert await answer_each(("b", "a") * MANY, str.upper) == ("B", "A")


def test_a_short_request_gets_an_answer_for_each_mention_of_a_partition() -> None:
    topics = [("t", (0, 1, 0)), ("u", ()), ("t", (1,))]
    assert list(places_to_answer(topics)) == topics


def test_a_long_request_gets_one_answer_for_each_partition_of_repeated_topics() -> None:
    topics = [("t", (0, 1, 0)), ("t", (1, 2)), ("u", (2,) * MANY), *[("t", (0,))] * MANY]
    assert list(places_to_answer(topics)) == [("t", (0, 1)), ("t", (2,)), ("u", (2,)), *[("t", ())] * MANY]


NAMES = [f"nobody-{number}" for number in range(30)]
NAMED = [{"name": name} for name in NAMES]
SOON = timedelta(seconds=30)
CONFIGURED = {
    "resources": [{"resource_type": 2, "resource_name": name, "configs": ()} for name in NAMES],
    "validate_only": False,
}
PASSES_OVER_NAMES: list[tuple[int, int, int, dict[str, Any]]] = [
    (
        3,
        12,
        1,
        {
            "topics": [{"name": None, "topic_id": None}] * len(NAMES),
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        },
    ),
    (20, 5, 3, {"topic_names": tuple(NAMES), "timeout": SOON}),
    (20, 6, 3, {"topics": [{"topic_id": None, **row} for row in NAMED], "timeout": SOON}),
    (33, 2, 2, CONFIGURED),
    (
        37,
        3,
        3,
        {
            "topics": [{"count": 2, "assignments": None, **row} for row in NAMED],
            "timeout": SOON,
            "validate_only": False,
        },
    ),
    (44, 1, 2, CONFIGURED),
    (46, 0, 1, {"topics": [{"name": "t", "partition_indexes": tuple(range(len(NAMES)))}], "timeout": SOON}),
    (
        49,
        1,
        2,
        {
            "entries": [
                {"entity": [{"entity_type": "user", "entity_name": name}], "ops": ()} for name in NAMES
            ],
            "validate_only": False,
        },
    ),
    (50, 0, 1, {"users": NAMED}),
    (51, 0, 1, {"deletions": [{"mechanism": 1, **row} for row in NAMED], "upsertions": ()}),
]
"""API key, version, passes over the names, and fields of requests that a client without rights sends."""


@pytest.mark.parametrize(("key", "version", "passes", "fields"), PASSES_OVER_NAMES)
async def test_others_work_while_many_names_are_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    key: int,
    version: int,
    passes: int,
    fields: dict[str, Any],
) -> None:
    """Here a turn of the event loop has time for one name of one pass."""
    monkeypatch.setattr(slices, "SLICE_S", -1.0)
    api = next(api for api in APIS if api.key == key)
    async with open_node(tmp_path) as node:
        node.services.node.access = Rights()
        asking = asyncio.ensure_future(node.ask(api, version, lambda _: fields))
        turns = 0
        while not asking.done():
            turns += 1
            await asyncio.sleep(0)
        assert await asking
    assert turns >= passes * len(NAMES)
