"""Sessions and takers on a real store: a directory, whose calls run in threads."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

from seqgate.gateway.cluster.objects.directory_objects import DirectoryObjects
from seqgate.gateway.cluster.wal.session_wal import SessionWal
from seqgate.gateway.cluster.wal.sessions import SessionFacts, register
from seqgate.gateway.cluster.wal.wal_object import DataRow, WalObject, decode, object_key
from tests.support.sealing import seal_earlier

FACTS = SessionFacts("cluster-a", 1_700_000_000_000, "host-1", "0.1.0")
ROW = DataRow(UUID(int=7), 0, 0, 0, 1, 0, 0, 5)


async def test_a_zombie_confirms_nothing_that_the_next_gateway_has_not_read(tmp_path: Path) -> None:
    first, second = DirectoryObjects(tmp_path), DirectoryObjects(tmp_path)
    session = await register(first, 1, FACTS)
    zombie = SessionWal(first, session, puts_in_flight=4)
    is_fenced = asyncio.Event()
    zombie.on_fenced.append(lambda _: is_fenced.set())
    confirmed: list[bytes] = []
    put: list[bytes] = []

    def put_next() -> None:
        """Put an object; go on when it is confirmed."""
        data = b"%05d" % len(put)
        put.append(data)
        zombie.put([ROW], [data], lambda: (confirmed.append(data), put_next()))  # type: ignore[func-returns-value]

    for _ in range(6):
        put_next()
    while len(confirmed) < 50:
        await asyncio.sleep(0)
    own = await register(second, 1, FACTS)
    [(_, log)] = await seal_earlier(second, own, "started")
    await asyncio.wait_for(is_fenced.wait(), 60)
    read = []
    for seq in range(log.first_seq, log.end_seq):
        key = object_key(1, session.session, seq)
        made = decode(await second.get(key), key)
        assert isinstance(made, WalObject)
        read.append(bytes(made.data[0]))
    assert read == put[: len(read)]
    assert confirmed == read[: len(confirmed)]
    await zombie.close()
    await first.close()
    await second.close()
