"""All implementations of an object store give the same answers to the same calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from seqgate.gateway.cluster.objects.objects import AlreadyThere, Buffer, Changed, Entry, Missing, ObjectStore
from tests.compat.objects.conftest import Open

RACERS = 16
ROUNDS = 12
DIGITS = b"0123456789"
LARGE = bytes(range(256)) * (9 << 12)
LONG_AGO_MS = 1_600_000_000_000


@pytest.fixture
def objects(open_store: Open) -> ObjectStore:
    return open_store()


async def entries_of(objects: ObjectStore, prefix: str = "", after: str = "") -> list[Entry]:
    return [entry async for entry in objects.list(prefix, after)]


async def keys_of(objects: ObjectStore, prefix: str = "", after: str = "") -> list[str]:
    return [entry.key for entry in await entries_of(objects, prefix, after)]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (DIGITS, DIGITS),
        (b"", b""),
        ([], b""),
        ([b""], b""),
        ([b"01", bytearray(b"234"), memoryview(b"x56789x")[1:-1]], DIGITS),
        ([LARGE, LARGE[:7]], LARGE + LARGE[:7]),
    ],
    ids=["bytes", "empty", "no buffers", "an empty buffer", "buffers", "large"],
)
async def test_what_is_created_can_be_read(
    objects: ObjectStore, content: bytes | Sequence[Buffer], expected: bytes
) -> None:
    await objects.create("wal/0/1/00000000000000000000", content)
    assert await objects.get("wal/0/1/00000000000000000000") == expected
    assert (await objects.read("wal/0/1/00000000000000000000"))[0] == expected
    entry = (await entries_of(objects))[0]
    assert (entry.key, entry.size_bytes) == ("wal/0/1/00000000000000000000", len(expected))
    assert entry.modified_ms > LONG_AGO_MS


async def test_the_first_creation_stays(objects: ObjectStore) -> None:
    await objects.create("a", b"first")
    for content in (b"second", b"first"):
        with pytest.raises(AlreadyThere):
            await objects.create("a", content)
    assert await objects.get("a") == b"first"


@pytest.mark.parametrize(
    ("first", "size_bytes", "expected"),
    [
        (0, None, DIGITS),
        (0, 4, b"0123"),
        (3, 4, b"3456"),
        (3, None, b"3456789"),
        (9, 1, b"9"),
        (8, 10, b"89"),
        (10, 10, b""),
        (11, None, b""),
        (4, 0, b""),
    ],
)
async def test_a_range(objects: ObjectStore, first: int, size_bytes: int | None, expected: bytes) -> None:
    await objects.create("a", DIGITS)
    assert await objects.get("a", first, size_bytes) == expected


@pytest.mark.parametrize(
    ("content", "size_bytes", "expected"),
    [(DIGITS, 3, b"789"), (DIGITS, 10, DIGITS), (DIGITS, 100, DIGITS), (DIGITS, 0, b""), (b"", 3, b"")],
)
async def test_the_end(objects: ObjectStore, content: bytes, size_bytes: int, expected: bytes) -> None:
    await objects.create("a", content)
    assert await objects.get_end("a", size_bytes) == expected


async def test_ranges_of_an_empty_object(objects: ObjectStore) -> None:
    await objects.create("a", b"")
    assert await objects.get("a", 0, 5) == b""
    assert await objects.get("a", 5) == b""


async def test_an_object_is_missing(objects: ObjectStore) -> None:
    await objects.create("folder/a", b"")
    for reading in (
        objects.get("folder/b"),
        objects.get("folder/b", 3, 4),
        objects.get("folder/b", 3, 0),
        objects.get("other/b"),
        objects.get_end("folder/b", 3),
        objects.get_end("folder/b", 0),
        objects.read("folder/b"),
    ):
        with pytest.raises(Missing):
            await reading


async def test_versions(objects: ObjectStore) -> None:
    first = await objects.replace("boundary", b"1", None)
    assert await objects.read("boundary") == (b"1", first)
    second = await objects.replace("boundary", b"2", first)
    for stale in (None, first):
        with pytest.raises(Changed):
            await objects.replace("boundary", b"3", stale)
    assert await objects.read("boundary") == (b"2", second)
    await objects.delete("boundary")
    with pytest.raises(Changed):
        await objects.replace("boundary", b"3", second)
    with pytest.raises(Missing):
        await objects.get("boundary")


async def test_the_version_of_a_created_object(objects: ObjectStore) -> None:
    await objects.create("a", b"1")
    _, version = await objects.read("a")
    await objects.replace("a", b"2", version)
    assert await objects.get("a") == b"2"


async def test_listings(objects: ObjectStore) -> None:
    keys = ["a/1", "a/10", "a/2", "a/b/1", "a/b=1", "a-/1", "ab/1", "b"]
    for key in keys:
        await objects.create(key, key.encode())
    assert await keys_of(objects) == sorted(keys)
    assert await keys_of(objects, "a/") == ["a/1", "a/10", "a/2", "a/b/1", "a/b=1"]
    assert await keys_of(objects, "a/b/") == ["a/b/1"]
    assert await keys_of(objects, "nothing/") == []
    assert await keys_of(objects, "a/", "a/10") == ["a/2", "a/b/1", "a/b=1"]
    assert await keys_of(objects, "a/", "a/0") == ["a/1", "a/10", "a/2", "a/b/1", "a/b=1"]
    assert await keys_of(objects, "a/", "a/b=1") == []
    assert await keys_of(objects, "", "a/b/1") == ["a/b=1", "ab/1", "b"]
    with pytest.raises(ValueError, match="must end with a slash"):
        await keys_of(objects, "a")


async def test_a_listing_of_several_pages(objects: ObjectStore) -> None:
    keys = [f"wal/{number:020}" for number in range(1005)]
    waiting = iter(keys)

    async def create_some() -> None:
        for key in waiting:
            await objects.create(key, b"")

    await asyncio.gather(*(create_some() for _ in range(8)))
    assert await keys_of(objects, "wal/") == keys
    assert await keys_of(objects, "wal/", keys[1]) == keys[2:]


async def test_a_deleted_object_is_gone(objects: ObjectStore) -> None:
    await objects.create("a", b"first")
    await objects.delete("a")
    await objects.delete("a")
    await objects.delete("never/there")
    assert await keys_of(objects) == []
    await objects.create("a", b"second")
    assert await objects.get("a") == b"second"


async def test_one_of_many_creations_wins(open_store: Open) -> None:
    stores = [open_store() for _ in range(RACERS)]
    for number in range(ROUNDS):
        key = f"race/{number}"
        results = await asyncio.gather(
            *(store.create(key, b"%d" % racer) for racer, store in enumerate(stores)), return_exceptions=True
        )
        winners = [racer for racer, result in enumerate(results) if result is None]
        assert len(winners) == 1, results
        assert {type(result) for result in results} == {type(None), AlreadyThere}
        assert await stores[0].get(key) == b"%d" % winners[0]


async def test_one_of_many_replacements_wins(open_store: Open) -> None:
    stores = [open_store() for _ in range(RACERS)]
    version = await stores[0].replace("boundary", b"", None)
    for number in range(ROUNDS):
        contents = [b"%d %d" % (number, racer) for racer in range(RACERS)]
        results = await asyncio.gather(
            *(
                store.replace("boundary", content, version)
                for store, content in zip(stores, contents, strict=True)
            ),
            return_exceptions=True,
        )
        winners = [racer for racer, result in enumerate(results) if isinstance(result, str)]
        assert len(winners) == 1, results
        assert {type(result) for result in results} == {str, Changed}
        assert await stores[0].read("boundary") == (contents[winners[0]], results[winners[0]])
        version = str(results[winners[0]])


async def test_a_wrong_key(objects: ObjectStore) -> None:
    for call in (
        objects.create("a/../b", b""),
        objects.get("../a"),
        objects.get_end("/a", 1),
        objects.read("a/"),
        objects.replace(".a", b"", None),
        objects.delete(""),
    ):
        with pytest.raises(ValueError, match="is no key of an object"):
            await call
    assert await keys_of(objects) == []


async def test_a_closed_store_has_kept_its_objects(open_store: Open) -> None:
    first = open_store()
    await first.create("a", DIGITS)
    await first.close()
    assert await open_store().get("a") == DIGITS
