"""A client's connection: an input is all bytes that the client sends before it hangs up.

Every request is answered, or its connection is closed with a log line that says why. Nothing fails inside the
gateway, and other clients can still produce and read.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager

from tests.fuzzing.changes import changed
from tests.fuzzing.composed_requests import GROUPS, TOPIC_IDS, TOPICS, VERSIONS, asked, request
from tests.fuzzing.fresh_scenes import fresh_scenes
from tests.fuzzing.scene import Scene
from tests.fuzzing.target import Run
from tests.support.wire import Plain

MAX_INPUT_BYTES = 8192
PEAK_BYTES = 64 << 20
BASE_WORK = 400.0
INPUTS_PER_SCENE = 300
MOST_PARTITIONS = 100
_BROKER = 4
_ACCEPT, _RELEASE, _REJECT, _RENEW = 1, 2, 3, 4


def opened() -> AbstractContextManager[Run]:
    return fresh_scenes(_feed, INPUTS_PER_SCENE)


async def _feed(scene: Scene, data: bytes) -> bool:
    await scene.feed(data)
    scene.complaints.check()
    image = scene.gateway.services.topics.metadata_log.image
    if image.configured(_BROKER):
        return False
    await scene.probe()
    scene.complaints.check()
    return image.partition_count <= MOST_PARTITIONS


def seeds() -> Iterator[bytes]:
    chance = random.Random(7)
    for chosen in VERSIONS:
        yield request(chance, chosen)
    yield b"".join(_share_group())
    yield b"".join(_streams_group())
    yield b"GET / HTTP/1.1\r\n\r\n"
    yield b"\x16\x03\x01\x02\x00\x01\x00\x01"
    yield b"\x7f\xff\xff\xff\0"


def _share_group() -> Iterator[bytes]:
    """Yield what a member of a share group sends: it acquires records, rejects the first one, releases the
    second and renews the third, releases the second again, and closes its session.
    """
    member = {"group_id": GROUPS[2], "member_id": "m"}
    topic_id = str(TOPIC_IDS[0])
    settings = {"max_bytes": 1 << 20, "max_records": 100, "batch_size": 100}

    def of_plain(*acknowledged: tuple[int, int]) -> list[Plain]:
        batches = [
            {"first_offset": offset, "last_offset": offset, "acknowledge_types": [kind]}
            for offset, kind in acknowledged
        ]
        partition = {"partition_index": 0, "acknowledgement_batches": batches}
        return [{"topic_id": topic_id, "partitions": [partition]}]

    yield asked("share_fetch", 2, **member, **settings, topics=of_plain())
    rejected = of_plain((0, _REJECT), (1, _RELEASE), (2, _RENEW))
    yield asked("share_acknowledge", 2, **member, share_session_epoch=1, is_renew_ack=True, topics=rejected)
    yield asked("share_fetch", 2, **member, **settings, share_session_epoch=2, topics=of_plain())
    released = of_plain((1, _RELEASE))
    yield asked("share_fetch", 1, **member, **settings, share_session_epoch=3, topics=released)
    yield asked("share_acknowledge", 1, **member, share_session_epoch=-1, topics=of_plain((2, _ACCEPT)))


def _streams_group() -> Iterator[bytes]:
    """Yield what a member of a streams group sends: a heartbeat, the description of its topology, and, as a
    tool, the question for it.
    """
    member = {"group_id": GROUPS[3], "member_id": "m"}
    source = {"name": "s", "node_type": 1, "source_topics": [TOPICS[0]], "successors": ["p", "t"]}
    processor = {"name": "p", "node_type": 2, "stores": ["counts"]}
    sink = {"name": "t", "node_type": 3, "sink_topic": TOPICS[1]}
    nodes = {"subtopology_id": "0", "nodes": [source, processor, sink]}
    description = {"subtopologies": [nodes], "global_stores": [{"source": source, "processor": processor}]}
    yield asked("streams_group_heartbeat", 1, **member, member_epoch=1, rebalance_timeout=-1)
    yield asked("streams_group_topology_description_update", 0, **member, topology_description=description)
    yield asked("streams_group_describe", 1, group_ids=[GROUPS[3]], include_topology_description=True)


def mutated(data: bytes, chance: random.Random) -> bytes:
    frames = _frames(data)
    for _ in range(chance.choice((1, 1, 2, 3))):
        if not frames or chance.random() < 0.5:
            frames.insert(chance.randrange(len(frames) + 1), request(chance))
        if chance.random() < 0.4:
            position = chance.randrange(len(frames))
            frames[position] = _sized(changed(frames[position][4:], chance))
        if len(frames) > 1 and chance.random() < 0.5:
            del frames[chance.randrange(len(frames))]
    stream = b"".join(frames)
    return changed(stream, chance) if chance.random() < 0.1 else stream


def _frames(data: bytes) -> list[bytes]:
    """Return the complete requests in a stream, and the remaining bytes."""
    frames = []
    while len(data) > 4:
        size = 4 + int.from_bytes(data[:4], "big")
        frames.append(data[:size])
        data = data[size:]
    return frames


def _sized(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload
