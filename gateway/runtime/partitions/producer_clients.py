"""Tracks the client of each producer id, over restarts too, and logs the clients that send batches again.

A batch carries a producer id and nothing else about its sender; the connection knows the rest. A gateway
notes the client when a connection sends the first batch of a producer, asks for the producer of a
transactional id, or ends a transaction.

Kafka's record format has no field for a client, so the table has a file of its own in the data directory,
`producer-clients`, JSON: `version`, `checksum` (CRC-32 of `producers`), `producers`: [producer id, first and
last producer epoch that the client has used, when it was seen last (ms), client id, address, principal,
library]. A lost or damaged file costs names, and nothing else: a living producer is noted again with its next
batch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from seqgate.gateway.config import Config
from seqgate.gateway.runtime.loop.clock import Clock
from seqgate.gateway.security.principals import ClientIdentity
from seqgate.log import PRODUCER_CLIENTS, Storage

logger = logging.getLogger(__name__)

SEEN_EVERY_MS: Final = 600_000
"""The time after which a producer whose connection is open is noted as seen again."""

REPORT_S: Final = 5.0
"""The time after the first duplicate when the log reports it, with all that came since."""
REPORTED: Final = 20
"""Lines in one report; the rest are one further line."""
COUNTED: Final = 1_000
"""Clients and partitions that one report counts apart; further ones are counted together."""


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


# The file with the clients.

_VERSION: Final = 1
JOINED: Final = 100_000
"""Producers that the joined files of several workers keep; beyond it those seen longest ago are dropped."""


class ClientRow(msgspec.Struct, frozen=True, array_like=True):
    producer_id: int
    first_epoch: int
    last_epoch: int
    seen_ms: int
    client_id: str
    address: str
    principal: str
    library: str | None


class _Content(msgspec.Struct):
    version: int
    checksum: int
    producers: msgspec.Raw


def encode_clients(rows: Sequence[ClientRow]) -> bytes:
    producers = msgspec.json.encode(rows)
    return msgspec.json.encode(_Content(_VERSION, crc32(producers), msgspec.Raw(producers)))


def decode_clients(content: bytes) -> list[ClientRow]:
    """Return the rows of a file; none of a damaged one, or of one that another release wrote."""
    try:
        found = msgspec.json.decode(content, type=_Content)
        if found.version != _VERSION or crc32(found.producers) != found.checksum:
            return []
        return msgspec.json.decode(found.producers, type=list[ClientRow])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []


def join_clients(contents: Iterable[bytes]) -> bytes | None:
    """Return one file in place of several; None where they have nobody. Of two rows of a producer the one
    with the later epoch stays.
    """
    joined: dict[int, ClientRow] = {}
    for row in (row for content in contents for row in decode_clients(content)):
        other = joined.get(row.producer_id, row)
        joined[row.producer_id] = max(row, other, key=lambda each: (each.last_epoch, each.seen_ms))
    newest = sorted(joined.values(), key=_seen_ms)[-JOINED:]
    return encode_clients(newest) if newest else None


def _seen_ms(row: ClientRow) -> int:
    return row.seen_ms


class ClientsFile:
    """Keeps the clients in a file: of a stop, and of the last `save` before a crash. The file is not flushed:
    a crash of the machine may cost the names.
    """

    def __init__(
        self,
        clients: ProducerClients,
        config: Config,
        clock: Clock,
        storage: Storage,
        directory: str,
        connected: Callable[[], Iterable[int]],
    ) -> None:
        """`connected` returns the producer ids of the open connections."""
        self._clients = clients
        self._config = config
        self._clock = clock
        self._storage = storage
        self._path = f"{directory}/{PRODUCER_CLIENTS}"
        self._connected = connected
        self._writing: asyncio.Future[None] | None = None
        self._has_failed = False

    def load(self) -> None:
        """Restore what the file has; without a readable file nothing is known."""
        try:
            content = self._storage.read_file(self._path)
        except FileNotFoundError:
            return
        except OSError as error:
            logger.warning("the clients of producers are unknown: %s can't be read: %s", self._path, error)
            return
        self._clients.restore(decode_clients(content), self._clock.now_ms())
        # the next save removes a file that names nobody
        self._clients.has_changed = len(self._clients) == 0
        self._forget()

    async def save(self) -> None:
        """Write the file if the table has changed. Without clients there is no file."""
        self._clients.see(self._connected(), self._clock.now_ms())
        self._forget()
        if self._clients.has_changed:
            self._clients.has_changed = False
            self._writing = asyncio.ensure_future(asyncio.to_thread(self._write, self._clients.copy()))
            await asyncio.shield(self._writing)

    async def close(self) -> None:
        """Write the file for the next start, after a write that is under way."""
        if self._writing is not None:
            await self._writing
        await self.save()

    def _forget(self) -> None:
        """Drop the clients of producers that neither a partition nor a transactional id remembers."""
        kept_ms = max(
            self._config.int("producer.id.expiration.ms"), self._config.int("transactional.id.expiration.ms")
        )
        self._clients.forget(self._clock.now_ms() - kept_ms)

    def _write(self, known: Sequence[tuple[int, _Known]]) -> None:
        rows = [ClientRow(each, *found[:3], *msgspec.structs.astuple(found.client)) for each, found in known]
        try:
            if rows:
                self._storage.replace(self._path, encode_clients(rows))
            else:
                self._storage.delete(self._path)
            self._has_failed = False
        except OSError as error:
            self._clients.has_changed = True
            if not self._has_failed:
                logger.warning("the clients of producers are not kept: %s", error)
            self._has_failed = True


# The report of retries in the log.


class RetryReport:
    """Logs who sent batches again that were stored before: one line for each client and partition, with the
    number of batches, at most every REPORT_S seconds.
    """

    def __init__(self) -> None:
        self._batches: dict[tuple[ClientIdentity, str, int], int] = {}
        self._others = 0

    def count(self, client: ClientIdentity, topic: str, partition: int) -> None:
        """Count a batch; the first one begins the time of the next report."""
        if not self._batches:
            asyncio.get_running_loop().call_later(REPORT_S, self.report)
        key = (client, topic, partition)
        if key in self._batches or len(self._batches) < COUNTED:
            self._batches[key] = self._batches.get(key, 0) + 1
        else:
            self._others += 1

    def report(self) -> None:
        """Log the batches that were counted, the most first, and begin again."""
        found = sorted(self._batches.items(), key=lambda item: -item[1])
        others = self._others + sum(batches for _, batches in found[REPORTED:])
        self._batches, self._others = {}, 0
        for (client, topic, partition), batches in found[:REPORTED]:
            logger.info("%s retried %s of %s-%d", client, _batches(batches), topic, partition)
        if others:
            logger.info("others retried %s", _batches(others))


def _batches(number: int) -> str:
    return "1 batch" if number == 1 else f"{number:,} batches"
