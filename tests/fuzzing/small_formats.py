"""Small formats, read by functions of their own: an input is the number of the reader and the bytes it gets.

The formats are subscriptions and assignments of members, regular expressions, config values, checkpoints,
snapshots, also of the metadata in a bucket, and the last state seen in Redis. Each reader accepts any bytes,
or refuses them with its own error.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from seqgate.gateway.cluster.metadata.snapshot import CorruptMetadataSnapshot as CorruptMetadata
from seqgate.gateway.cluster.metadata.snapshot import decode_snapshot, encode_snapshot, image_batches
from seqgate.gateway.cluster.wal.sessions import (
    CorruptRegistration,
    RegisteredSession,
    Snapshot,
    decode_boundary,
    decode_registration,
    encode_boundary,
    encode_registration,
)
from seqgate.gateway.cluster.wal.wal_object import CorruptWalObject
from seqgate.gateway.config import Config
from seqgate.gateway.config.setting import InvalidValueError, parse_iso_duration, render
from seqgate.gateway.config.table import SETTINGS
from seqgate.gateway.coordinator.group.consumer_assignors import (
    assigned_partitions,
    encode_assignment,
    read_subscription,
    subscribed_topics,
)
from seqgate.gateway.coordinator.group.consumer_heartbeat import compiled
from seqgate.gateway.coordinator.group.epoch_group import HeartbeatRefused
from seqgate.gateway.handlers.transactions.transactions import InvalidPattern, transaction_filter
from seqgate.log.errors import IncompatibleFormat
from seqgate.log.files import checkpoints
from seqgate.log.format.record_batch import parse_header
from seqgate.log.segments.transaction_index import TransactionIndex
from seqgate.log.state import delays
from seqgate.log.state.delays import Hold, parse_due_ms
from seqgate.pid_allocator import StoreWentBack
from seqgate.pid_allocator.seen_file import load_seen
from seqgate.seq_validator import CorruptSnapshot, ProducerTable
from seqgate.seq_validator.names import (
    MAX_SEQUENCE_ID,
    CorruptNames,
    NamedRecord,
    NameTable,
    advances_of,
    decode_names,
    encode_names,
)
from tests.fuzzing.changes import changed
from tests.fuzzing.damage import sealed
from tests.fuzzing.scene import MEMORY
from tests.fuzzing.target import Breach, Run
from tests.support.batches import Batch

MAX_INPUT_BYTES = 2048
PEAK_BYTES = 64 << 20
BASE_WORK = 300.0
NAMES = ("plain", "compacted", "nothing", "x" * 249)
SEALED = True
"""Formats that end with a checksum of four bytes; most inputs get a correct one."""


class Reader(NamedTuple):
    """A decoder, the errors with which it may refuse bytes, and bytes that it accepts."""

    read: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]
    examples: tuple[bytes, ...]
    is_sealed: bool = False


@contextmanager
def opened() -> Iterator[Run]:
    yield feed


def feed(data: bytes) -> None:
    reader = READERS[data[0] % len(READERS)] if data else READERS[0]
    with suppress(*reader.refusals):
        reader.read(data[1:])


def _member_metadata(data: bytes) -> None:
    whole = read_subscription(data)
    names = subscribed_topics(data)
    if whole is not None and whole.topics != names:
        raise Breach(f"a subscription names {names} and also {whole.topics}")


def _assignment(data: bytes) -> None:
    assigned = assigned_partitions(data)
    if assigned is not None and assigned_partitions(encode_assignment(3, assigned)) != {
        name: sorted(indexes) for name, indexes in sorted(assigned.items())
    }:
        raise Breach(f"encoding the assignment {assigned} again gives another one")


def _topic_pattern(data: bytes) -> None:
    pattern = compiled(data.decode(errors="replace"))
    for name in NAMES:
        pattern.fullmatch(name)


def _transaction_pattern(data: bytes) -> None:
    transaction_filter((), (), -1, data.decode(errors="replace"), 0)


def _setting(data: bytes) -> None:
    setting = SETTINGS[int.from_bytes(data[:2], "big") % len(SETTINGS)]
    text = data[2:].decode(errors="replace")
    value = setting.parse(text)
    again = render(value)
    if again is not None and setting.parse(again) != value:
        raise Breach(f"{setting.name}: {text!r} is read as {value!r} and shown as {again!r}")
    Config().set_dynamic({setting.name: text}, all_brokers=True)


def _duration(data: bytes) -> None:
    parse_iso_duration(data.decode(errors="replace"))


def _transaction_index(data: bytes) -> None:
    index = TransactionIndex(data)
    if index.is_sane(0, 1000):
        found: list[tuple[int, int]] = []
        index.collect(3, 900, found)


def _producers(data: bytes) -> None:
    table, _ = ProducerTable.restore(data, retained_batches=3)
    header = parse_header(Batch().of(7, 0, 5).encode())
    table.judge(header, 0)
    table.update(header, 2000, 0)
    table.expire(2**62, 1)
    table.snapshot(3000)


def _names(data: bytes) -> None:
    names, log_end_offset = decode_names(data)
    table = NameTable()
    table.restore(names)
    if decode_names(encode_names(table.written()[0], log_end_offset)) != (names, log_end_offset):
        raise Breach("encoding the snapshot of names again gives other names")
    records = [NamedRecord(0, name, MAX_SEQUENCE_ID, MAX_SEQUENCE_ID) for name, *_ in names]
    table.judge(records, 0, high_watermark=0)
    table.update(advances_of(records), 5, 0, high_watermark=0)
    for producer_id in table.open_transactions():
        table.end_transaction(producer_id, commit=True, marker_offset=9, high_watermark=0)
    table.expire(2**62, 1)
    table.states(3)


def _names_snapshot() -> bytes:
    return encode_names([(b"app", 7, -1, 3, 1_000, ()), (b"z", -1, 2, -1, 2_000, ((11, 5), (12, 6)))], 9)


def _delayed(data: bytes) -> None:
    snapshot = delays.decode(data, "delayed-records")
    if delays.decode(delays.encode(snapshot), "again") != snapshot:
        raise Breach("encoding the delayed records again gives others")


def _seen(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=MEMORY if MEMORY.is_dir() else None) as file:
        file.write(data)
        file.flush()
        asyncio.run(load_seen(Path(file.name)))


def _metadata_snapshot(data: bytes) -> None:
    """Read a snapshot whose checksum, but for some inputs, is put right."""
    checked = data[:4] + crc32c(data[8:]).to_bytes(4, "big") + data[8:] if data[4:5] != b"!" else data
    snapshot = decode_snapshot(checked, 40)
    if decode_snapshot(encode_snapshot(snapshot), 40) != snapshot:
        raise Breach(f"encoding the snapshot {snapshot} again gives another one")


def _registration(data: bytes) -> None:
    registered = decode_registration(data, 7)
    if decode_registration(encode_registration(registered), 7) != registered:
        raise Breach(f"encoding {registered} again gives another session")


def _producer_snapshot() -> bytes:
    table = ProducerTable(retained_batches=3)
    for number in range(3):
        table.update(parse_header(Batch().of(7 + number, 0, 0).encode()), number, 0)
    return table.snapshot(3)


def _example_of_transaction_index() -> bytes:
    index = TransactionIndex()
    for number in range(3):
        index.add(7, 10 * number, 10 * number + 5, 10 * number)
    return bytes(index.entries)


_FILE = (checkpoints.CorruptCheckpoint, IncompatibleFormat)
_SESSION = RegisteredSession(7, 1, bytes(range(16)), "cluster", 4, 5, "host", "0.1")
READERS = (
    Reader(
        _member_metadata,
        (),
        (
            b"\0\0\0\0\0\1\0\5plain\xff\xff\xff\xff",
            b"\0\3\0\0\0\1\0\5plain\0\0\0\2ab\0\0\0\1\0\5plain\0\0\0\1\0\0\0\0\0\0\0\1\0\1r",
        ),
    ),
    Reader(_assignment, (), (b"\0\0\0\0\0\1\0\5plain\0\0\0\2\0\0\0\0\0\0\0\1\xff\xff\xff\xff",)),
    Reader(
        _topic_pattern, (HeartbeatRefused,), (b"plain|comp.*", b"(a*)*b", b"\\p{Greek}{3}", b"x{1000}{1000}")
    ),
    Reader(_transaction_pattern, (InvalidPattern,), (b"t.*", b"(((((a{9}){9}){9}){9}){9})")),
    Reader(
        _setting,
        (InvalidValueError,),
        tuple(
            number.to_bytes(2, "big") + (render(setting.default) or "").encode()
            for number, setting in enumerate(SETTINGS)
        ),
    ),
    Reader(_duration, (ValueError,), (b"PT5M", b"-P1DT2H3.5S", b"P999999999D")),
    Reader(
        lambda data: checkpoints.decode_offsets(data, "offsets"),
        _FILE,
        (checkpoints.encode_offsets({("plain", 0): 5, ("plain", 1): 7}),),
    ),
    Reader(
        lambda data: checkpoints.decode_leader_epochs(data, "epochs"),
        _FILE,
        (checkpoints.encode_leader_epochs([(0, 0), (3, 50)]),),
    ),
    Reader(
        lambda data: checkpoints.decode_partition_metadata(data, "metadata"),
        _FILE,
        (checkpoints.encode_partition_metadata(uuid.UUID(int=7)),),
    ),
    Reader(_transaction_index, (), (_example_of_transaction_index(),)),
    Reader(_producers, (CorruptSnapshot,), (_producer_snapshot(),), SEALED),
    Reader(
        _delayed,
        (delays.CorruptDelayedSnapshot, IncompatibleFormat),
        (delays.encode(delays.DelayedSnapshot(5, "due", [Hold(1, 2)], [(3, 4)])),),
        SEALED,
    ),
    Reader(_seen, (StoreWentBack,), (b'{"store_id":"s","next_producer_id":5}',)),
    Reader(parse_due_ms, (), (b"1700000000000",)),
    Reader(_names, (CorruptNames,), (_names_snapshot(),), SEALED),
    Reader(
        lambda data: decode_boundary(data, "wal/1/7/boundary"),
        (CorruptWalObject, IncompatibleFormat),
        (encode_boundary(12),),
    ),
    Reader(
        _registration,
        (CorruptRegistration, IncompatibleFormat),
        (encode_registration(RegisteredSession(7, 1, bytes(range(16)), "cluster", 1, 5, "host", "0.1")),),
    ),
    Reader(
        _metadata_snapshot,
        (CorruptMetadata, IncompatibleFormat),
        (encode_snapshot(Snapshot(40, 9, "cluster", 8, (_SESSION,), image_batches([b"one", b"two"], 9, 0))),),
    ),
)


def seeds() -> Iterator[bytes]:
    for number, reader in enumerate(READERS):
        for example in reader.examples:
            yield bytes([number]) + example


def mutated(data: bytes, chance: random.Random) -> bytes:
    if not data or chance.random() < 0.4:
        number = chance.randrange(len(READERS))
        data = bytes([number]) + chance.choice(READERS[number].examples)
    rest = changed(data[1:], chance)
    if READERS[data[0] % len(READERS)].is_sealed and chance.random() < 0.9:
        rest = sealed(rest)
    return data[:1] + rest
