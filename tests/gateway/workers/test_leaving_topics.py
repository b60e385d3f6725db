"""The names of removed topics, and who still uses their directories."""

from __future__ import annotations

import uuid

from seqgate.gateway.metadata.image import TopicImage
from seqgate.gateway.metadata.records import PartitionRecord
from seqgate.gateway.workers.leaving_topics import LeavingTopics, LeftDirectory

TOPIC_ID = uuid.UUID(int=7)


def topic(*leaders: int) -> TopicImage:
    partitions = {
        index: PartitionRecord(index, TOPIC_ID, (leader,), (leader,), leader, 0)
        for index, leader in enumerate(leaders)
    }
    return TopicImage("t", TOPIC_ID, partitions)


def test_a_name_is_free_once_all_leaders_have_left() -> None:
    leaving = LeavingTopics()
    leaving.removed(topic(1, 2, 1))
    assert leaving.users(["t", "u"]) == {"t": [1, 2]}
    leaving.left(3, TOPIC_ID)
    leaving.left(1, uuid.UUID(int=8))
    leaving.left(1, TOPIC_ID)
    assert leaving.users(["t"]) == {"t": [2]}
    leaving.left(2, TOPIC_ID)
    assert leaving.users(["t"]) == {}
    assert not leaving


def test_the_dead_leave_their_directories_to_others() -> None:
    leaving = LeavingTopics()
    leaving.removed(topic(1, 2, 1))
    assert leaving.left_by_the_dead([1, 2]) == []
    assert leaving.left_by_the_dead([2]) == [LeftDirectory("t", 0, TOPIC_ID), LeftDirectory("t", 2, TOPIC_ID)]
    assert leaving.users(["t"]) == {"t": [2]}
    assert leaving.left_by_the_dead([]) == [LeftDirectory("t", 1, TOPIC_ID)]
    assert not leaving


def test_a_topic_without_partitions_is_in_nobodys_way() -> None:
    leaving = LeavingTopics()
    leaving.removed(topic())
    assert not leaving
