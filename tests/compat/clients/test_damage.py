"""Consumers of all four libraries reach a damaged batch, after a bit was flipped and the gateway was killed.

Where the header of the batch still has its right size, the consumer gets the damaged bytes, and the library
finds the CRC wrong. Otherwise the gateway answers CORRUPT_MESSAGE, as Kafka does. All four consumers can seek
past the batch.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.errors import CorruptRecordException
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import CorruptRecordError

from seqgate.gateway.admin.client import ask
from seqgate.gateway.admin.status import StatusRequest
from seqgate.log.directory.stored_logs import RECOVERY_POINTS
from seqgate.log.format.record_batch import whole_batches
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_tools import run_tool

TIMEOUT_S = 60.0
TOPIC = "orders"
RECORDS = 6
DAMAGED = 2
SOUND = [offset for offset in range(RECORDS) if offset != DAMAGED]
BIT_OF = {"records": 8 * 70, "length": 8 * 8 + 1}
JVM_SOURCE = Path(__file__).with_name("ReadPastDamage.java")
Damaged = tuple[GatewayProcess, bool]
"""A gateway with a damaged batch, and whether the batch's header still has the right size."""


@pytest.fixture(scope="module", params=list(BIT_OF))
def damaged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Damaged]:
    data_dir = tmp_path_factory.mktemp("damaged") / "data"
    gateway = GatewayProcess(data_dir, settings={"log.flush.offset.checkpoint.interval.ms": "100"})
    gateway.start()
    producer = KafkaProducer(bootstrap_servers=gateway.bootstrap, acks="all")
    for number in range(RECORDS):
        producer.send(TOPIC, f"value {number}".encode(), partition=0).get(TIMEOUT_S)
    producer.close()
    deadline_s = time.monotonic() + TIMEOUT_S
    while f"{TOPIC} 0 {RECORDS}" not in (data_dir / RECOVERY_POINTS).read_text():
        assert time.monotonic() < deadline_s
    gateway.kill()
    segment = data_dir / f"{TOPIC}-0" / f"{0:020d}.log"
    content = bytearray(segment.read_bytes())
    position, _ = list(whole_batches(content))[DAMAGED]
    bit = 8 * position + BIT_OF[request.param]
    content[bit // 8] ^= 1 << bit % 8
    segment.write_bytes(content)
    gateway.start()
    assert segment.read_bytes() == content
    yield gateway, request.param == "records"
    gateway.stop()


def test_status_lists_the_batch(damaged: Damaged) -> None:
    (found,) = ask(damaged[0].data_dir, StatusRequest()).damaged
    assert (found.topic, found.first_offset, found.end_offset) == (TOPIC, DAMAGED, DAMAGED + 1)


def test_status_lists_bytes_that_were_cut_off_until_their_file_is_deleted(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path / "data")
    gateway.start()
    with contextlib.closing(KafkaProducer(bootstrap_servers=gateway.bootstrap, acks="all")) as producer:
        for number in range(RECORDS):
            producer.send(TOPIC, f"value {number}".encode(), partition=0).get(TIMEOUT_S)
    gateway.kill()
    segment = tmp_path / "data" / f"{TOPIC}-0" / f"{0:020d}.log"
    content = bytearray(segment.read_bytes())
    position, _ = list(whole_batches(content))[DAMAGED]
    content[position + 70] ^= 1
    segment.write_bytes(content)
    with gateway:
        (found,) = ask(gateway.data_dir, StatusRequest()).cut
        assert (found.records, found.first_offset, found.last_offset) == (
            RECORDS - DAMAGED - 1,
            DAMAGED + 1,
            RECORDS - 1,
        )
        assert "CUT OFF" in _status(gateway.data_dir, code=1)
        (gateway.data_dir / found.file).unlink()
        assert "CUT OFF" not in _status(gateway.data_dir, code=0)


def _status(data_dir: Path, *, code: int) -> str:
    command = [sys.executable, "-m", "seqgate", "status", "--data-dir", str(data_dir)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert ended.returncode == code, ended.stderr
    return ended.stdout


def test_producers_go_on_behind_the_old_end(damaged: Damaged) -> None:
    producer = KafkaProducer(bootstrap_servers=damaged[0].bootstrap, acks="all")
    assert producer.send(TOPIC, b"one more", partition=0).get(TIMEOUT_S).offset >= RECORDS
    producer.close()


def test_kafka_python(damaged: Damaged) -> None:
    partition = KafkaPythonPartition(TOPIC, 0)
    consumer = KafkaConsumer(bootstrap_servers=damaged[0].bootstrap, group_id=None)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    found: list[int] = []
    errors: list[int] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while consumer.position(partition) < RECORDS and time.monotonic() < deadline_s:
        try:
            found += [row.offset for row in consumer.poll(timeout_ms=1000).get(partition, ())]
        except CorruptRecordError:
            errors.append(consumer.position(partition))
            consumer.seek(partition, errors[-1] + 1)
    consumer.close()
    assert (found[: len(SOUND)], errors) == (SOUND, [DAMAGED])


async def test_aiokafka(damaged: Damaged) -> None:
    """The library raises an error for a wrong CRC.

    For CORRUPT_MESSAGE it only logs a warning, and fetches again until the application seeks.
    """
    gateway, is_framed = damaged
    partition = AiokafkaPartition(TOPIC, 0)
    found: list[int] = []
    raised = 0
    async with AIOKafkaConsumer(bootstrap_servers=gateway.bootstrap, group_id=None) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        async with asyncio.timeout(TIMEOUT_S):
            while await consumer.position(partition) < RECORDS:
                rows = []
                try:
                    rows = (await consumer.getmany(timeout_ms=500)).get(partition, [])
                except CorruptRecordException:
                    raised += 1
                found += [row.offset for row in rows]
                if not rows and await consumer.position(partition) == DAMAGED:
                    consumer.seek(partition, DAMAGED + 1)
    assert (found[: len(SOUND)], raised) == (SOUND, 1 if is_framed else 0)


@pytest.mark.parametrize("checks_crcs", [True, False])
def test_librdkafka(damaged: Damaged, *, checks_crcs: bool) -> None:
    """By default the library checks no CRC: it accepts a damaged batch that parses, as it does from Kafka."""
    gateway, is_framed = damaged
    consumer = Consumer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "group.id": "readers",
            "check.crcs": checks_crcs,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([ConfluentPartition(TOPIC, 0, 0)])
    found: list[int] = []
    errors: list[int] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while RECORDS - 1 not in found and time.monotonic() < deadline_s:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found.append(message.offset() or 0)
        elif message.offset() not in errors:
            expected = KafkaError._BAD_MSG if is_framed else KafkaError.INVALID_MSG
            assert error.code() == expected
            errors.append(message.offset() or 0)
            consumer.seek(ConfluentPartition(TOPIC, 0, DAMAGED + 1))
    consumer.close()
    is_taken = is_framed and not checks_crcs
    assert (found, errors) == ((list(range(RECORDS)), []) if is_taken else (SOUND, [DAMAGED]))


def test_kafkas_own_consumer(damaged: Damaged) -> None:
    gateway, is_framed = damaged
    lines = run_tool(str(JVM_SOURCE), gateway.bootstrap, TOPIC, str(RECORDS)).expect_success().stdout
    rows = lines.splitlines()
    assert [int(row.split()[0]) for row in rows if not row.startswith("error")][: len(SOUND)] == SOUND
    (error,) = (row for row in rows if row.startswith("error"))
    assert error.startswith(f"error {DAMAGED} ")
    assert ("please seek past the record" if is_framed else "Encountered corrupt message") in error
