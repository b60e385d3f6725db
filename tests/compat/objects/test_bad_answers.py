"""A store that answers badly, before or after it has carried out a request: the caller is told what it may
conclude, and no more.
"""

from __future__ import annotations

import asyncio

import pytest

from seqgate.gateway.cluster.objects.objects import (
    AlreadyThere,
    Changed,
    Entry,
    Missing,
    ObjectStore,
    StoreFailed,
)
from seqgate.gateway.cluster.objects.obstore_objects import ObstoreObjects
from tests.compat.objects.conftest import Server
from tests.support.fault_proxy import AFTER, Answer, Fault, FaultProxy

IMPATIENT_S = 1.0
"""The timeout of a client that gets no answer. Other clients wait as long as they do in a gateway."""
SILENT = {Fault.SILENT_BEFORE, Fault.SILENT_AFTER}
CARRIED_OUT = {*AFTER, Fault.CUT_ANSWER}
UNKNOWN = [
    Fault.BUSY_BEFORE,
    Fault.BUSY_AFTER,
    Fault.CONFLICT_BEFORE,
    Fault.CONFLICT_AFTER,
    Fault.RESET_BEFORE,
    Fault.RESET_AFTER,
    Fault.SILENT_BEFORE,
    Fault.SILENT_AFTER,
    Fault.CUT_ANSWER,
    Fault.STRANGE_404,
    Answer("500 Internal Server Error"),
    Answer("429 Too Many Requests"),
    Answer.error(
        "400 Bad Request", "RequestTimeout", "Your socket connection to the server was not read from."
    ),
    Answer.error("403 Forbidden", "QuotaExceeded", "The quota of the bucket is used up."),
]
"""The faults after which nobody knows whether the request was carried out."""


@pytest.fixture
def behind(server: Server, proxy: FaultProxy, prefix: str) -> ObstoreObjects:
    """An object store client whose requests go through the proxy."""
    return server.objects(prefix, port=proxy.port)


@pytest.fixture
def victim(server: Server, proxy: FaultProxy, prefix: str, fault: Fault | Answer) -> ObstoreObjects:
    """The client whose request meets the fault."""
    if fault in SILENT:
        return server.objects(prefix, port=proxy.port, timeout_s=IMPATIENT_S)
    return server.objects(prefix, port=proxy.port)


@pytest.fixture
def direct(server: Server, prefix: str) -> ObstoreObjects:
    """A client of the same objects before the proxy."""
    return server.objects(prefix)


async def content_of(objects: ObjectStore, key: str) -> bytes | None:
    try:
        return await objects.get(key)
    except Missing:
        return None


@pytest.mark.parametrize("fault", UNKNOWN, ids=str)
async def test_a_creation(
    victim: ObstoreObjects, direct: ObstoreObjects, proxy: FaultProxy, fault: Fault | Answer
) -> None:
    proxy.plan("PUT", fault)
    with pytest.raises(StoreFailed, match=r"^s3://seqgate/test/[0-9]+/a: "):
        await victim.create("a", b"mine")
    proxy.settle()
    assert proxy.requests == ["PUT"], "the client tried again by itself"
    if fault in CARRIED_OUT:
        assert await direct.get("a") == b"mine"
        with pytest.raises(AlreadyThere):
            await direct.create("a", b"mine")
    else:
        assert await content_of(direct, "a") is None
        await direct.create("a", b"mine")


@pytest.mark.parametrize("fault", UNKNOWN, ids=str)
async def test_a_replacement(
    victim: ObstoreObjects, direct: ObstoreObjects, proxy: FaultProxy, fault: Fault | Answer
) -> None:
    version = await direct.replace("a", b"1", None)
    proxy.plan("PUT", fault)
    with pytest.raises(StoreFailed):
        await victim.replace("a", b"2", version)
    proxy.settle()
    assert proxy.requests == ["PUT"], "the client tried again by itself"
    if fault in CARRIED_OUT:
        assert await direct.get("a") == b"2"
        with pytest.raises(Changed):
            await direct.replace("a", b"2", version)
    else:
        assert await direct.get("a") == b"1"
        await direct.replace("a", b"2", version)


@pytest.mark.parametrize("fault", UNKNOWN, ids=str)
async def test_a_read_that_failed_is_not_missing(
    victim: ObstoreObjects, direct: ObstoreObjects, proxy: FaultProxy, fault: Fault | Answer
) -> None:
    await direct.create("a/1", b"0123456789")

    async def listed() -> list[Entry]:
        return [entry async for entry in victim.list("a/")]

    reads = [
        victim.get("a/1"),
        victim.get("a/1", 2, 3),
        victim.get_end("a/1", 4),
        victim.read("a/1"),
        victim.get("a/2"),
        listed(),
    ]
    proxy.plan("GET", *[fault] * len(reads))
    results = await asyncio.gather(*reads, return_exceptions=True)
    assert [type(result) for result in results] == [StoreFailed] * len(reads)
    assert proxy.requests == ["GET"] * len(reads), "the client tried again by itself"


@pytest.mark.parametrize("fault", [fault for fault in UNKNOWN if fault is not Fault.CUT_ANSWER], ids=str)
async def test_a_deletion(
    victim: ObstoreObjects, direct: ObstoreObjects, proxy: FaultProxy, fault: Fault | Answer
) -> None:
    await direct.create("a", b"")
    proxy.plan("DELETE", fault)
    with pytest.raises(StoreFailed):
        await victim.delete("a")
    proxy.settle()
    assert proxy.requests == ["DELETE"], "the client tried again by itself"
    assert await content_of(direct, "a") == (None if fault in AFTER else b"")
    await direct.delete("a")
    assert await content_of(direct, "a") is None


async def test_a_creation_that_lands_late(
    behind: ObstoreObjects, direct: ObstoreObjects, proxy: FaultProxy
) -> None:
    proxy.plan("PUT", Fault.LATE, Fault.LATE)
    for key in ("free", "taken"):
        with pytest.raises(StoreFailed):
            await behind.create(key, b"late")
    assert await content_of(direct, "free") is None
    await direct.create("taken", b"other")
    proxy.release()
    assert await direct.get("free") == b"late"
    assert await direct.get("taken") == b"other"


async def test_a_store_that_is_killed(server: Server, prefix: str) -> None:
    with type(server)() as own:
        objects = own.objects(prefix, timeout_s=IMPATIENT_S)
        await objects.create("a", b"")
        own.kill()
        for call in (
            objects.create("b", b""),
            objects.get("a"),
            objects.replace("a", b"", None),
            objects.delete("a"),
        ):
            with pytest.raises(StoreFailed):
                await call
