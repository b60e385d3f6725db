"""The acts of scripts: parts of a broker that break while the application sends. Each act runs between two bursts of values, and yields for the next burst."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gateway.certify.scene import PRODUCE, Scene

OUTAGE_BURSTS: Final = 4
"""Bursts of values that arrive while a part is broken."""
_PRODUCE_TIMEOUT_S: Final = 5.0
"""Time in which a client sends what it has got; then the script goes on without a batch in flight."""
_METADATA_TIMEOUT_S: Final = 20.0
"""Time in which a client asks for a topic twice; then the topic is created all the same."""


def broker_killed(scene: Scene) -> Iterator[None]:
    """Kill the broker while it holds back the answers to batches that it has stored."""
    with scene.answers_held() as held:
        yield
        yield
        scene.wait_until_struck(held, 1, _PRODUCE_TIMEOUT_S)
        scene.acted("broker killed")
        scene.broker.kill()
    yield
    scene.broker.start()


def broker_restarted(scene: Scene) -> Iterator[None]:
    """Stop the broker cleanly, and start it two bursts later."""
    scene.acted("broker stopped")
    scene.broker.stop()
    yield
    yield
    scene.broker.start()


def power_cut(scene: Scene) -> Iterator[None]:
    """Cut the broker's power, which loses what was not flushed."""
    scene.acted("power cut")
    scene.broker.power_cut()
    yield
    scene.broker.start()


def partition_offline(scene: Scene) -> Iterator[None]:
    """Take the partitions offline for some bursts."""
    scene.acted("partition offline")
    with scene.partitions_offline():
        for _ in range(OUTAGE_BURSTS):
            yield


def disk_full(scene: Scene) -> Iterator[None]:
    """Let the disk be full for some bursts."""
    scene.acted("disk full")
    with scene.broker.faults.disk_full():
        for _ in range(OUTAGE_BURSTS):
            yield


def producer_forgotten(scene: Scene) -> Iterator[None]:
    """Let the partitions forget all producers, as after `producer.id.expiration.ms`."""
    known = {row.producer_id for row in scene.broker.producers(scene.topic)}
    scene.acted("producer forgotten", in_vain=not known)
    for producer_id in known:
        scene.broker.faults.expire_producer(producer_id)
    yield


def leader_moves_unseen(scene: Scene) -> Iterator[None]:
    """Refuse a batch, and close the connections that ask for the leader of its partition then."""
    faults = scene.broker.faults
    scene.add(faults.not_leader(topic=scene.topic))
    scene.add(faults.close(api="Metadata", times=2))
    yield


def last_batches_refused(scene: Scene) -> Iterator[None]:
    """Refuse the batches that come from now on, a few times."""
    scene.add(scene.broker.faults.error("NOT_ENOUGH_REPLICAS", api=PRODUCE, topic=scene.topic, times=4))
    yield


def topic_created_late(scene: Scene) -> Iterator[None]:
    """Create the topic when the client has asked for it twice."""
    with scene.broker.faults.watch(api="Metadata", topic=scene.topic) as asked:
        scene.add(asked, "Metadata without the topic")
        yield
        scene.wait_until_struck(asked, 2, _METADATA_TIMEOUT_S)
    scene.broker.create_topic(scene.topic, scene.partitions)
