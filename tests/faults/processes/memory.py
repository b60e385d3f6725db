"""Too little memory: large requests, large answers and many connections that need more than the process may
use.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from seqgate.gateway.server.intake import NO_MEMORY
from tests.faults.kill.load import create_topic
from tests.faults.processes.scene import Outcome, Scene, Setting, play, until
from tests.support.batches import Batch, records
from tests.support.wire import Wire

ROOM_BYTES = 16 << 20
"""Memory that the process may use beyond its size at the start."""
LARGE_TOPIC, LARGE_BYTES = "large", 900_000
LARGE_RECORDS = 40
READERS, SENDERS = 40, 16
UNFINISHED_BYTES, SENT_BYTES = 8 << 20, 7 << 20
SEND_TIMEOUT_S = 0.5
MOST_RECORDS_BETWEEN = 400


def run(directory: Path, seed: int, rounds: int) -> Outcome:
    """Request more memory than there is, while producers continue."""

    def act(scene: Scene) -> None:
        create_topic(scene.gateway.bootstrap, LARGE_TOPIC, 1, max_message_bytes=2 * LARGE_BYTES)
        _write_large(scene)
        for _ in range(rounds):
            with _limited(scene), contextlib.ExitStack() as held:
                for _ in range(SENDERS):
                    _begin_large_request(scene, held)
                for _ in range(READERS):
                    _ask_and_never_read(scene, held)
                scene.producers.await_further(scene.rng.randint(1, MOST_RECORDS_BETWEEN))
            until(lambda: _reads_large(scene), "large answers come again")
        assert scene.gateway.is_running, scene.gateway.stderr_text()[-3000:]
        scene.counts["requests without memory"] += scene.gateway.stderr_text().count(NO_MEMORY)

    return play(directory, seed, act, Setting())


@contextlib.contextmanager
def _limited(scene: Scene) -> Iterator[None]:
    pid = scene.gateway.pid
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    before = resource.prlimit(pid, resource.RLIMIT_AS)
    resource.prlimit(pid, resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM_BYTES, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_AS, before)


def _write_large(scene: Scene) -> None:
    batch = Batch(records(1, LARGE_BYTES)).encode()
    data = [{"name": LARGE_TOPIC, "partition_data": [{"index": 0, "records": batch}]}]
    with Wire(scene.gateway.bootstrap) as wire:
        for _ in range(LARGE_RECORDS):
            answer = wire.call("produce", 9, acks=-1, timeout=30_000, topic_data=data).fields
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0, answer


def _begin_large_request(scene: Scene, held: contextlib.ExitStack) -> None:
    """Send the size of a request and as much of the request as the gateway takes. The rest never arrives."""
    with contextlib.suppress(OSError):
        address = "127.0.0.1", scene.gateway.port
        one = held.enter_context(socket.create_connection(address, timeout=SEND_TIMEOUT_S))
        one.sendall(struct.pack(">i", UNFINISHED_BYTES) + bytes(SENT_BYTES))


def _ask_and_never_read(scene: Scene, held: contextlib.ExitStack) -> None:
    with contextlib.suppress(OSError):
        wire = held.enter_context(Wire(scene.gateway.bootstrap))
        wire.send("fetch", 11, _fetch())


def _fetch() -> dict[str, object]:
    wanted = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 50 << 20}]
    return {
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 50 << 20,
        "topics": [{"topic": LARGE_TOPIC, "partitions": wanted}],
    }


def _reads_large(scene: Scene) -> bool:
    try:
        with Wire(scene.gateway.bootstrap) as wire:
            answer = wire.call("fetch", 11, _fetch()).fields
    except Exception:
        return False
    partition = answer["responses"][0]["partitions"][0]
    return partition["error_code"] == 0 and len(partition["records"] or b"") > LARGE_BYTES
