"""Faults of the Redis that stores the producer ids of two gateways: it is killed, stopped, emptied and set
back, while four client libraries use the gateways.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.kill.load import KillableGateway, fixed_port
from tests.faults.processes.scene import PARTITIONS, TOPIC, Outcome, Scene, Setting, command, play, until
from tests.support.redis_server import RedisServer
from tests.support.wire import Wire

BLOCK_SIZE = 10
TIMEOUT_MS = 200
MOST_IDS = 3 * BLOCK_SIZE
NO_ID_YET = 14
"""COORDINATOR_LOAD_IN_PROGRESS: the client retries."""


class Ids:
    """Every id that any gateway has handed out, each requested over the wire."""

    def __init__(self, gateways: list[KillableGateway], outcome: Outcome) -> None:
        self._gateways = gateways
        self._outcome = outcome
        self.handed_out: Counter[int] = Counter()

    def ask(self, index: int) -> int:
        """Request an id from one gateway; return -1 if the gateway has none at present. Any other error is a
        breach.
        """
        with Wire(self._gateways[index].bootstrap) as wire:
            answer = wire.call(
                "init_producer_id",
                4,
                transactional_id=None,
                transaction_timeout=0,
                producer_id=-1,
                producer_epoch=-1,
            ).fields
        error_code, producer_id = answer["error_code"], int(answer["producer_id"])
        if error_code:
            if error_code != NO_ID_YET:
                self._outcome.breaches.append(f"an id was refused with error {error_code}")
            return -1
        self.handed_out[producer_id] += 1
        self._outcome.counts["producer ids handed out"] += 1
        if self.handed_out[producer_id] > 1:
            self._outcome.breaches.append(f"producer id {producer_id} was handed out twice")
        return producer_id

    def ask_all(self, count: int) -> None:
        for index in range(len(self._gateways)):
            for _ in range(count):
                self.ask(index)

    def use_up(self) -> None:
        """Request ids until no gateway has any left."""
        for index in range(len(self._gateways)):
            until(lambda index=index: self.ask(index) < 0, "the ids are used up")  # type: ignore[misc]

    def await_one(self) -> None:
        """Wait until every gateway hands out ids again."""
        for index in range(len(self._gateways)):
            until(lambda index=index: self.ask(index) >= 0, "ids come again")  # type: ignore[misc]


def run(directory: Path, seed: int, rounds: int) -> Outcome:
    """Run every fault `rounds` times, in random order."""
    with RedisServer() as redis:
        settings = {
            "seqgate.producer.id.store": "redis",
            "seqgate.redis.url": redis.url,
            "seqgate.redis.timeout.ms": str(TIMEOUT_MS),
            "seqgate.producer.id.block.size": str(BLOCK_SIZE),
        }

        def act(scene: Scene) -> None:
            with _second_gateway(scene, settings) as second:
                ids = Ids([scene.gateway, second], scene.outcome)
                for _ in range(rounds):
                    faults = [_killed, _hung, _emptied, _set_back]
                    scene.rng.shuffle(faults)
                    for fault in faults:
                        ids.ask_all(scene.rng.randint(1, MOST_IDS))
                        fault(scene, redis, ids)
                _check_libraries(scene, ids)
                checked = command(scene.gateway, "pids", "check")
                assert checked.returncode == 0, checked.stdout + checked.stderr

        return play(directory, seed, act, Setting(settings=settings))


@contextmanager
def _second_gateway(scene: Scene, settings: dict[str, str]) -> Iterator[KillableGateway]:
    second = KillableGateway(
        scene.directory / "second", settings={**settings, "node.id": "2"}, port=fixed_port()
    )
    with second:
        yield second
    if "Traceback" in second.stderr_text():
        scene.outcome.breaches.append("the second gateway logged an unexpected exception")


def _while_away(scene: Scene, ids: Ids) -> None:
    """Stop Redis: the gateways hand out their claimed ids and then answer with a clear error; producers
    notice nothing.
    """
    ids.use_up()
    scene.producers.await_further(100)


def _killed(scene: Scene, redis: RedisServer, ids: Ids) -> None:
    redis.save()
    redis.kill()
    _while_away(scene, ids)
    redis.start()
    ids.await_one()
    scene.counts["Redis killed"] += 1


def _hung(scene: Scene, redis: RedisServer, ids: Ids) -> None:
    redis.hang()
    try:
        _while_away(scene, ids)
    finally:
        redis.resume()
    ids.await_one()
    scene.counts["Redis hung"] += 1


def _emptied(scene: Scene, redis: RedisServer, ids: Ids) -> None:
    redis.flush()
    _until_mended(scene, ids)
    scene.counts["Redis emptied"] += 1


def _set_back(scene: Scene, redis: RedisServer, ids: Ids) -> None:
    older = redis.backup()
    ids.ask_all(2 * BLOCK_SIZE)
    redis.restore(older)
    _until_mended(scene, ids)
    scene.counts["Redis set back"] += 1


def _until_mended(scene: Scene, ids: Ids) -> None:
    """Wait until all gateways hand out ids again after the store was set back. A gateway may refuse the
    store, but must hand out no id twice.

    A gateway that refuses the store is mended by `seqgate pids move`.
    """
    ids.ask_all(3 * BLOCK_SIZE)
    scene.producers.await_further(100)
    moved = command(scene.gateway, "pids", "move", str(max(ids.handed_out) + 10 * BLOCK_SIZE), "--yes")
    assert "Traceback" not in moved.stderr, moved.stderr
    ids.await_one()


def _check_libraries(scene: Scene, ids: Ids) -> None:
    """Check that the libraries' ids are none of those requested over the wire."""
    with Wire(scene.gateway.bootstrap) as wire:
        topics = [{"name": TOPIC, "partition_indexes": list(range(PARTITIONS))}]
        answer = wire.call("describe_producers", 0, topics=topics).fields["topics"][0]["partitions"]
    used = {row["producer_id"] for partition in answer for row in partition["active_producers"]}
    if len(used) < len(scene.producers.all):
        scene.outcome.breaches.append(f"{len(scene.producers.all)} libraries produced under the ids {used}")
    scene.outcome.breaches += [
        f"id {producer_id} is a library's too" for producer_id in used & set(ids.handed_out)
    ]
