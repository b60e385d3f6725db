"""Deleting topics: by name and by id, and what a client without rights learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqgate.gateway.handlers.admin.topics import DELETE_TOPICS_API, TopicToDelete, delete_topics
from seqgate.gateway.metadata.records import RemoveTopicRecord
from seqgate.gateway.metadata.topics import TopicCreation, TopicResult
from seqgate.gateway.security.acls.access import Operation
from tests.gateway.handlers.requests import TIMEOUT, create
from tests.gateway.handlers.support import open_node
from tests.gateway.metadata.support import image_with, replay, topic_id

RIGHTS = {
    "own": {Operation.DESCRIBE, Operation.DELETE},
    "seen": {Operation.DESCRIBE},
    "hidden": set[Operation](),
    "unseen": {Operation.DELETE},
}


def may(operation: Operation, name: str) -> bool:
    return operation in RIGHTS[name.removeprefix("no-")]


def codes(results: list[TopicResult]) -> list[str]:
    return ["none" if result.error is None else result.error.error_code.name for result in results]


def test_by_name_and_by_id() -> None:
    image = image_with(TopicCreation(name="a"), TopicCreation(name="b"))
    b_id = image.topics_by_name["b"].topic_id
    decision = delete_topics(image, [TopicToDelete(name="a"), TopicToDelete(topic_id=b_id)])
    assert codes(decision.answer) == ["none", "none"]
    assert [result.name for result in decision.answer] == ["a", "b"]
    assert len(decision.records) == 2
    assert all(isinstance(record, RemoveTopicRecord) for record in decision.records)
    assert replay(image, decision).topics_by_name == {}


def test_refusals() -> None:
    image = image_with(TopicCreation(name="a"))
    a_id = image.topics_by_name["a"].topic_id
    decision = delete_topics(
        image,
        [
            TopicToDelete(name="none"),
            TopicToDelete(topic_id=topic_id(7)),
            TopicToDelete(),
            TopicToDelete(name="a", topic_id=a_id),
            TopicToDelete(name="twice"),
            TopicToDelete(name="twice"),
            TopicToDelete(topic_id=topic_id(8)),
            TopicToDelete(topic_id=topic_id(8)),
        ],
    )
    assert codes(decision.answer) == [
        "unknown_topic_or_partition",
        "unknown_topic_id",
        "invalid_request",
        "invalid_request",
        "invalid_request",
        "invalid_request",
    ]
    assert decision.records == []


def test_a_topic_that_is_given_by_name_and_by_id_stays_and_gets_one_result() -> None:
    image = image_with(TopicCreation(name="a"))
    a_id = image.topics_by_name["a"].topic_id
    by_name, by_id = TopicToDelete(name="a"), TopicToDelete(topic_id=a_id)
    for topics in ([by_name, by_id], [by_id, by_name], [by_name]):
        decision = delete_topics(image, topics, ids={a_id})
        assert codes(decision.answer) == ["invalid_request"]
        assert (decision.answer[0].name, decision.answer[0].topic_id) == ("a", a_id)
        assert decision.records == []


async def test_an_id_that_is_repeated_refuses_the_name_of_its_topic(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        await create(node, "a")
        image = node.services.topics.metadata_log.image
        a_id = image.topics_by_name["a"].topic_id

        def make(module: Any) -> dict[str, Any]:
            by_id = module.DeleteTopicState(name=None, topic_id=a_id)
            by_name = module.DeleteTopicState(name="a", topic_id=None)
            return {"topics": (by_id, by_id, by_name), "timeout": TIMEOUT}

        rows = (await node.ask(DELETE_TOPICS_API, 6, make)).responses
        assert [row.error_message for row in rows] == [
            "Duplicate topic id.",
            "The provided topic name maps to an ID that was already supplied.",
        ]
        assert "a" in node.services.topics.metadata_log.image.topics_by_name


def test_a_name_is_refused_before_the_topic_is_found_unless_the_client_may_describe_it() -> None:
    image = image_with(*(TopicCreation(name=name) for name in RIGHTS))
    names = [*RIGHTS, *(f"no-{name}" for name in RIGHTS)]
    decision = delete_topics(image, [TopicToDelete(name=name) for name in names], may)
    assert [(result.name, result.topic_id) for result in decision.answer][1:] == [
        (name, None) for name in names[1:]
    ]
    assert dict(zip(names, codes(decision.answer), strict=True)) == {
        "own": "none",
        "seen": "topic_authorization_failed",
        "hidden": "topic_authorization_failed",
        "unseen": "topic_authorization_failed",
        "no-own": "unknown_topic_or_partition",
        "no-seen": "unknown_topic_or_partition",
        "no-hidden": "topic_authorization_failed",
        "no-unseen": "topic_authorization_failed",
    }
    assert set(replay(image, decision).topics_by_name) == set(RIGHTS) - {"own"}


def test_the_refusal_of_an_id_tells_the_name_only_to_who_may_describe_the_topic() -> None:
    image = image_with(*(TopicCreation(name=name) for name in RIGHTS))
    ids = [image.topics_by_name[name].topic_id for name in RIGHTS]
    decision = delete_topics(image, [TopicToDelete(topic_id=asked) for asked in [*ids, topic_id(99)]], may)
    refused = "topic_authorization_failed"
    assert codes(decision.answer) == ["none", refused, refused, "none", "unknown_topic_id"]
    assert [result.name for result in decision.answer] == ["own", "seen", None, "unseen", None]
    assert [result.topic_id for result in decision.answer] == [*ids, topic_id(99)]


def test_repeated_names_are_refused_for_that_whatever_the_rights() -> None:
    image = image_with(TopicCreation(name="hidden"))
    twice = [TopicToDelete(name="hidden")] * 2
    assert codes(delete_topics(image, twice, may).answer) == ["invalid_request"]


def test_nobody_learns_from_a_name_and_an_id_that_they_are_the_same_topic() -> None:
    image = image_with(TopicCreation(name="hidden"))
    hidden_id = image.topics_by_name["hidden"].topic_id
    both = [TopicToDelete(topic_id=hidden_id), TopicToDelete(name="hidden")]
    assert codes(delete_topics(image, both, may).answer) == ["topic_authorization_failed"] * 2
