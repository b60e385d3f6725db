"""Tracks the client of each producer id, over restarts too, and keeps the newest verdicts over restarts.

A batch carries a producer id and nothing else about its sender; the connection knows the rest. A gateway
notes the client when a connection sends the first batch of a producer, asks for the producer of a
transactional id, or ends a transaction.

Kafka's record format has no field for a client, so the table has a file of its own in the data directory,
`producer-clients`, JSON: `version`, `checksum` (CRC-32 of `producers`, then of `verdicts`), `producers`:
[producer id, first and last producer epoch that the client has used, when it was seen last (ms), client id,
address, principal, library], `verdicts`: [node id, the fields of `UnstoredBatch`]. A lost or damaged file
costs names and verdicts, and nothing else: a living producer is noted again with its next batch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple, Self
from zlib import crc32

import msgspec

from seqgate.gateway.config import Config
from seqgate.gateway.runtime.loop.clock import Clock
from seqgate.gateway.runtime.partitions.verdicts import Int64, UnstoredBatch, Verdicts
from seqgate.gateway.security.principals import ClientIdentity
from seqgate.log import PRODUCER_CLIENTS, Storage

logger = logging.getLogger(__name__)

SEEN_EVERY_MS: Final = 600_000
"""The time after which a producer whose connection is open is noted as seen again."""


class _Known(NamedTuple):
    """The client of a producer, and the producer epochs that the client is known to have used."""

    first_epoch: int
    last_epoch: int
    seen_ms: int
    client: ClientIdentity
    is_restored: bool = False
    """Whether an earlier process noted the client. Another client may have used later epochs since."""


class ProducerClients:
    """The clients by producer id, up to `limit`; beyond it the one seen longest ago is dropped."""

    def __init__(self) -> None:
        self.limit = 0
        """The present value of `seqgate.producer.clients.max`."""
        self.has_changed = False
        """Whether the table differs from its file."""
        self._known: dict[int, _Known] = {}
        """By producer id, the one seen longest ago first."""

    def __len__(self) -> int:
        return len(self._known)

    def note(self, producer_id: int, producer_epoch: int, client: ClientIdentity, now_ms: int) -> None:
        """Note the client of a producer; of the epochs that another client used none is known from now on."""
        if producer_id < 0:
            return
        before = self._known.pop(producer_id, None)
        first = last = producer_epoch
        if (
            before is not None
            and before.client == client
            and (not before.is_restored or producer_epoch <= before.last_epoch)
        ):
            first, last = min(before.first_epoch, first), max(before.last_epoch, last)
        self._known[producer_id] = _Known(first, last, now_ms, client)
        self.has_changed = True
        self._keep_limit()

    def find(self, producer_id: int, producer_epoch: int) -> ClientIdentity | None:
        """Return the client of a producer in an epoch; None where it is unknown."""
        known = self._known.get(producer_id)
        if known is None or producer_epoch < known.first_epoch:
            return None
        return None if known.is_restored and producer_epoch > known.last_epoch else known.client

    def newest(self, producer_id: int) -> ClientIdentity | None:
        """Return the client that had the producer last; None where it is unknown."""
        known = self._known.get(producer_id)
        return None if known is None or known.is_restored else known.client

    def see(self, producer_ids: Iterable[int], now_ms: int) -> None:
        """Note that the clients of these producers are still connected."""
        for producer_id in producer_ids:
            known = self._known.get(producer_id)
            if known is not None and now_ms - known.seen_ms >= SEEN_EVERY_MS:
                del self._known[producer_id]
                self._known[producer_id] = known._replace(seen_ms=now_ms)
                self.has_changed = True

    def forget(self, before_ms: int) -> None:
        """Drop the clients that were not seen since, and those beyond the limit."""
        while self._known:
            oldest = next(iter(self._known))
            if self._known[oldest].seen_ms >= before_ms:
                break
            del self._known[oldest]
            self.has_changed = True
        self._keep_limit()

    def pack(self) -> bytes:
        """Return all entries as one block of bytes, and forget them until `unpack`. They were made amid other
        work, so that each keeps a page of what is freed around it.
        """
        packed = msgspec.msgpack.encode(list(self._known.items()))
        self._known = {}
        return packed

    def unpack(self, packed: bytes) -> None:
        self._known = dict(msgspec.msgpack.decode(packed, type=list[tuple[int, _Known]]))

    def copy(self) -> list[tuple[int, _Known]]:
        """Return the table of this moment, for another thread."""
        return list(self._known.items())

    def restore(self, rows: Iterable[ClientRow], now_ms: int) -> None:
        """Take over what an earlier process knew; call once, before the first `note`."""
        for row in sorted(rows, key=_seen_ms):
            client = ClientIdentity(row.client_id, row.address, row.principal, row.library)
            # a clock that was set back must not keep a client longer
            seen_ms = min(row.seen_ms, now_ms)
            self._known[row.producer_id] = _Known(row.first_epoch, row.last_epoch, seen_ms, client, True)

    def _keep_limit(self) -> None:
        while len(self._known) > self.limit:
            del self._known[next(iter(self._known))]
            self.has_changed = True


_VERSION: Final = 1
MOST_BYTES: Final = 256 << 20
"""The size beyond which a file is none that a gateway wrote; its content is not read."""
JOINED: Final = 100_000
"""Producers that the joined files of several workers keep; beyond it those seen longest ago are dropped."""


class ClientRow(msgspec.Struct, frozen=True, array_like=True):
    producer_id: Int64
    first_epoch: Int64
    last_epoch: Int64
    seen_ms: Int64
    client_id: str
    address: str
    principal: str
    library: str | None


class VerdictRow(msgspec.Struct, frozen=True, array_like=True):
    """A verdict, and the gateway or worker that has it."""

    node_id: Int64
    batch: UnstoredBatch


class _Content(msgspec.Struct):
    version: int
    checksum: int
    producers: msgspec.Raw
    verdicts: msgspec.Raw = msgspec.Raw(b"")

    def computed_checksum(self) -> int:
        return crc32(self.verdicts, crc32(self.producers))


class KeptRows(NamedTuple):
    clients: Sequence[ClientRow] = ()
    verdicts: Sequence[VerdictRow] = ()

    @classmethod
    def read(cls, storage: Storage, path: str) -> Self:
        """Return a file's rows; none of a damaged one, or of another release's. Raises OSError."""
        return cls.decode(storage.read_file(path) if storage.size_bytes(path) <= MOST_BYTES else b"")

    @classmethod
    def decode(cls, content: bytes) -> Self:
        try:
            found = msgspec.json.decode(content, type=_Content)
            if found.version != _VERSION or found.computed_checksum() != found.checksum:
                return cls()
            clients = msgspec.json.decode(found.producers, type=list[ClientRow])
            return cls(clients, msgspec.json.decode(found.verdicts or b"[]", type=list[VerdictRow]))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return cls()

    def encode(self) -> bytes:
        producers, verdicts = (msgspec.Raw(msgspec.json.encode(rows)) for rows in self)
        content = _Content(_VERSION, 0, producers, verdicts)
        content.checksum = content.computed_checksum()
        return msgspec.json.encode(content)

    def write(self, storage: Storage, path: str) -> None:
        """Replace the file; without rows there is none. Raises OSError."""
        if any(self):
            storage.replace(path, self.encode())
        else:
            storage.delete(path)

    def of(self, node_ids: Collection[int]) -> Self:
        """Return all clients, and the verdicts of these nodes."""
        return self._replace(verdicts=[row for row in self.verdicts if row.node_id in node_ids])


def join_rows(files: Iterable[KeptRows]) -> KeptRows:
    """Return one file in place of several. Of two rows of a producer the one with the later epoch stays."""
    joined: dict[int, ClientRow] = {}
    verdicts: list[VerdictRow] = []
    for rows in files:
        verdicts += rows.verdicts
        for row in rows.clients:
            other = joined.get(row.producer_id, row)
            joined[row.producer_id] = max(row, other, key=lambda each: (each.last_epoch, each.seen_ms))
    return KeptRows(sorted(joined.values(), key=_seen_ms)[-JOINED:], verdicts)


def _seen_ms(row: ClientRow) -> int:
    return row.seen_ms


class ClientsFile:
    """Keeps the clients and the newest verdicts in a file: of a stop, and of the last `save` before a crash.
    The file is not flushed: a crash of the machine may cost them.
    """

    def __init__(
        self,
        clients: ProducerClients,
        verdicts: Verdicts,
        config: Config,
        clock: Clock,
        storage: Storage,
        directory: str,
        node_id: int,
        connected: Callable[[], Iterable[int]],
    ) -> None:
        """`connected` returns the producer ids of the open connections."""
        self.clients = clients
        self._verdicts = verdicts
        self._config = config
        self._clock = clock
        self._storage = storage
        self._path = f"{directory}/{PRODUCER_CLIENTS}"
        self._node_id = node_id
        self._connected = connected
        self._saved: tuple[int, int] | None = None
        """The numbers of the first and the last verdict of the file; None without one."""
        self._writing: asyncio.Future[None] | None = None
        self._has_failed = False

    def load(self) -> None:
        """Restore what the file has; without a readable file nothing is known."""
        try:
            found = KeptRows.read(self._storage, self._path)
        except FileNotFoundError:
            return
        except OSError as error:
            logger.warning("the clients of producers are unknown: %s can't be read: %s", self._path, error)
            return
        now_ms = self._clock.now_ms()
        self.clients.restore(found.clients, now_ms)
        self._verdicts.restore((row.batch for row in found.verdicts), now_ms)
        self._saved = _numbers([row.batch for row in found.verdicts])
        # the next save removes a file without rows
        self.clients.has_changed = not any(found)
        self._forget()

    async def save(self) -> None:
        """Write the file if the clients or the verdicts have changed. Without both there is no file."""
        self.clients.see(self._connected(), self._clock.now_ms())
        self._forget()
        verdicts = self._kept_verdicts()
        if self.clients.has_changed or _numbers(verdicts) != self._saved:
            self.clients.has_changed = False
            self._saved = _numbers(verdicts)
            self._writing = asyncio.ensure_future(self._write(self.clients.copy(), verdicts))
            await asyncio.shield(self._writing)

    async def close(self) -> None:
        """Write the file for the next start, after a write that is under way."""
        if self._writing is not None:
            await self._writing
        await self.save()

    def _kept_verdicts(self) -> list[UnstoredBatch]:
        return self._verdicts.last(self._config.int("seqgate.verdicts.kept.max"))

    def _forget(self) -> None:
        """Drop clients that no partition or transactional id remembers, and verdicts that are as old."""
        kept_ms = max(
            self._config.int("producer.id.expiration.ms"), self._config.int("transactional.id.expiration.ms")
        )
        before_ms = self._clock.now_ms() - kept_ms
        self.clients.forget(before_ms)
        self._verdicts.forget(before_ms)

    async def _write(self, known: Sequence[tuple[int, _Known]], verdicts: Sequence[UnstoredBatch]) -> None:
        """Write the file in a thread. What fails is left to the next save: a stop goes on without it."""
        try:
            await asyncio.to_thread(self._write_file, known, verdicts)
            self._has_failed = False
        except Exception as error:  # noqa: BLE001 - also without memory or threads
            self.clients.has_changed = True
            if not self._has_failed:
                logger.warning("the clients of producers are not kept: %s", str(error) or repr(error))
            self._has_failed = True

    def _write_file(self, known: Sequence[tuple[int, _Known]], verdicts: Sequence[UnstoredBatch]) -> None:
        KeptRows(
            [ClientRow(each, *found[:3], *msgspec.structs.astuple(found.client)) for each, found in known],
            [VerdictRow(self._node_id, each) for each in verdicts],
        ).write(self._storage, self._path)


def _numbers(verdicts: Sequence[UnstoredBatch]) -> tuple[int, int] | None:
    return (verdicts[0].number, verdicts[-1].number) if verdicts else None
