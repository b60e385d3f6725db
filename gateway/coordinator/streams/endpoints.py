"""The partitions that each instance of an application reads, so that interactive queries find the state of a key.

Source: Kafka's `EndpointToPartitionsManager`.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.coordinator.group.consumer_heartbeat import Topics
from gateway.coordinator.streams.group import StreamsGroup, StreamsMember
from gateway.coordinator.streams.internal_topics import ConfiguredSubtopology
from gateway.coordinator.streams.request import EndpointPartitions
from gateway.coordinator.streams.tasks import Tasks, by_subtopology


def endpoints_of(
    group: StreamsGroup, asking: StreamsMember, topics: Topics
) -> tuple[EndpointPartitions, ...]:
    """Return the partitions of every member with an endpoint; those of the member that asks come last."""
    configured = None if group.configured is None else group.configured.subtopologies
    members = [member for member in group.members.values() if member is not asking]
    found = []
    for member in (*members, asking):
        endpoint = member.value.user_endpoint
        if endpoint is not None:
            assigned = member.current.assigned.tasks
            active = _partitions(assigned.active, configured or {}, topics)
            standby = _partitions(assigned.standby, configured or {}, topics)
            found.append(EndpointPartitions(endpoint, active, standby))
    return tuple(found)


def _partitions(
    tasks: Tasks, configured: Mapping[str, ConfiguredSubtopology], topics: Topics
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return (topic, partitions) of the source topics; a smaller topic has no partition for the last tasks."""
    found = []
    for subtopology_id, numbers in by_subtopology(tasks).items():
        subtopology = configured.get(subtopology_id)
        for topic in () if subtopology is None else subtopology.sources:
            described = topics.describe(topic)
            count = 0 if described is None else described[1]
            partitions = tuple(number for number in numbers if number < count)
            if partitions:
                found.append((topic, partitions))
    return tuple(found)
