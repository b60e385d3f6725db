from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.cluster.wal import wal_object
from seqgate.gateway.cluster.wal.wal_object import (
    FOOTER_BYTES,
    MAX_REASON_BYTES,
    NONCE_BYTES,
    CorruptWalObject,
    DataRow,
    FileRow,
    Seal,
    WalObject,
    checked_data,
    decode,
    decode_index,
    encode,
    encode_seal,
    index_bytes,
)
from seqgate.log import IncompatibleFormat

NONCE = bytes(range(NONCE_BYTES))
TOPIC = UUID(int=7)
ROW = DataRow(TOPIC, 3, 0, 100, 110, 50, 4_096, 5)
FILE = FileRow(TOPIC, 3, "log-start-offset", 2)
KEY = "wal/1/4/00000000000000000009"


def whole(made: WalObject) -> bytes:
    return b"".join(bytes(buffer) for buffer in encode(made))


def plain(made: WalObject) -> WalObject:
    return made._replace(rows=list(made.rows), data=[bytes(part) for part in made.data])


SMALL = WalObject(1, 4, 9, NONCE, [ROW, FILE, ROW], [b"hello", b"60", b"again"])
SEAL = Seal(1, 4, 9, NONCE, 2, "node 2 takes over")

int32 = st.integers(0, 2**31 - 1)
int64 = st.integers(0, 2**63 - 1)
names = st.from_regex(r"[0-9a-z][0-9A-Za-z._-]{0,126}", fullmatch=True)
topic_ids = st.integers(0, 2**128 - 1).map(lambda number: UUID(int=number))


@st.composite
def objects(draw: st.DrawFn) -> WalObject:
    rows: list[DataRow | FileRow] = []
    data = []
    for _ in range(draw(st.integers(0, 5))):
        topic_id, partition = draw(topic_ids), draw(int32)
        if draw(st.booleans()):
            content = draw(st.binary(max_size=50))
            rows.append(FileRow(topic_id, partition, draw(names), len(content)))
            data.append(content)
            continue
        base, first, end = sorted(draw(st.lists(int64, min_size=3, max_size=3)))
        content = draw(st.binary(min_size=1, max_size=50))
        first, end = min(first, 2**63 - 2), max(end, min(first, 2**63 - 2) + 1)
        base = min(base, first)
        rows.append(DataRow(topic_id, partition, draw(int32), first, end, base, draw(int64), len(content)))
        data.append(draw(st.sampled_from([bytes, bytearray, memoryview]))(content))
    return WalObject(
        draw(int32), draw(int64), draw(int64), draw(st.binary(min_size=16, max_size=16)), rows, data
    )


class TestRoundTrip:
    @given(objects())
    def test_whole(self, made: WalObject) -> None:
        read = decode(whole(made), KEY)
        assert isinstance(read, WalObject)
        assert plain(read) == plain(made)

    @given(objects())
    def test_index_from_the_end(self, made: WalObject) -> None:
        content = whole(made)
        needed = index_bytes(content[-FOOTER_BYTES:], KEY)
        index = decode_index(content[-needed:], KEY)
        assert not isinstance(index, Seal)
        assert index[:4] == made[:4]
        assert index.size_bytes == len(content)
        assert [placed.row for placed in index.rows] == list(made.rows)
        assert [content[placed.start : placed.start + placed.row.length] for placed in index.rows] == [
            bytes(part) for part in made.data
        ]

    @given(int32, int64, int64, int32, st.text(max_size=50))
    def test_seal(self, node_id: int, session: int, seq: int, by: int, reason: str) -> None:
        seal = Seal(node_id, session, seq, NONCE, by, reason)
        content = encode_seal(seal)
        assert decode(content, KEY) == seal
        assert decode_index(content[-index_bytes(content, KEY) :], KEY) == seal

    def test_a_long_reason_is_cut_between_characters(self) -> None:
        seal = decode(encode_seal(SEAL._replace(reason="x" + "é" * MAX_REASON_BYTES)), KEY)
        assert isinstance(seal, Seal)
        assert seal.reason == "x" + "é" * ((MAX_REASON_BYTES - 1) // 2)

    def test_an_object_without_rows(self) -> None:
        empty = WalObject(1, 4, 9, NONCE, [], [])
        assert decode(whole(empty), KEY) == empty

    def test_data_is_not_copied(self) -> None:
        data = bytearray(b"hello")
        assert encode(WalObject(1, 4, 9, NONCE, [ROW], [data]))[1] is data


class TestDamage:
    @given(st.data())
    def test_any_changed_byte_is_noticed(self, data: st.DataObject) -> None:
        content = bytearray(data.draw(st.sampled_from([whole(SMALL), encode_seal(SEAL)])))
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= data.draw(st.integers(1, 255))
        with pytest.raises((CorruptWalObject, IncompatibleFormat), match=KEY):
            decode(bytes(content), KEY)

    @pytest.mark.parametrize("content", [whole(SMALL), encode_seal(SEAL)])
    def test_any_cut_is_noticed(self, content: bytes) -> None:
        for size in range(len(content)):
            with pytest.raises(CorruptWalObject, match=KEY):
                decode(content[:size], KEY)
            with pytest.raises(CorruptWalObject, match=KEY):
                decode(content[-size:] if size else b"", KEY)

    @pytest.mark.parametrize("content", [whole(SMALL), encode_seal(SEAL)])
    def test_an_index_that_is_not_whole(self, content: bytes) -> None:
        needed = index_bytes(content, KEY)
        for size in range(FOOTER_BYTES, needed):
            with pytest.raises(
                CorruptWalObject, match=f"needs the last {needed} bytes, and there are {size}"
            ):
                decode_index(content[-size:], KEY)

    def test_the_damaged_row_is_named(self) -> None:
        content = whole(SMALL).replace(b"again", b"agaim")
        with pytest.raises(CorruptWalObject, match=f"offsets 100 to 109 of partition 3 of the topic {TOPIC}"):
            decode(content, KEY)
        index = decode_index(content, KEY)
        assert not isinstance(index, Seal)
        first, file, second = index.rows
        assert bytes(checked_data(first, memoryview(b"hello"), KEY)) == b"hello"
        with pytest.raises(CorruptWalObject):
            checked_data(second, memoryview(b"agaim"), KEY)
        with pytest.raises(CorruptWalObject):
            checked_data(second, memoryview(b"agai"), KEY)
        with pytest.raises(CorruptWalObject, match=r"the file log-start-offset of partition 3"):
            checked_data(file, memoryview(b"61"), KEY)

    @pytest.mark.parametrize("made", [lambda: whole(SMALL), lambda: encode_seal(SEAL)])
    def test_a_later_version_is_refused(
        self, made: Callable[[], bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(wal_object, "VERSION", 3)
        content = made()
        monkeypatch.undo()
        with pytest.raises(IncompatibleFormat, match="has version 3; this program reads version 2"):
            decode(content, KEY)


class TestEncodeRefusesWhatNoReaderWouldAccept:
    @pytest.mark.parametrize(
        "row",
        [
            ROW._replace(partition=-1),
            ROW._replace(leader_epoch=-1),
            ROW._replace(first_offset=110),
            ROW._replace(segment_base=101),
            ROW._replace(segment_base=-1),
            ROW._replace(position=-1),
            ROW._replace(length=0),
            FILE._replace(partition=-1),
            FILE._replace(name=""),
            FILE._replace(name="../escape"),
            FILE._replace(name=".."),
            FILE._replace(name="a" * 128),
        ],
    )
    def test_impossible_values(self, row: DataRow | FileRow) -> None:
        with pytest.raises(ValueError, match="has impossible values"):
            encode(WalObject(1, 4, 9, NONCE, [row], [b"hello"]))

    def test_too_little_data(self) -> None:
        with pytest.raises(ValueError, match="is 5 bytes long, and has 4 bytes"):
            encode(WalObject(1, 4, 9, NONCE, [ROW], [b"hell"]))
        with pytest.raises(ValueError, match="has 1 rows, and data for 0"):
            encode(WalObject(1, 4, 9, NONCE, [ROW], []))

    def test_pieces_are_stored_one_after_the_other(self) -> None:
        pieces = WalObject(1, 4, 9, NONCE, [ROW], [(b"he", memoryview(b"llo"))])
        assert b"".join(encode(pieces)) == b"".join(encode(pieces._replace(data=[b"hello"])))
        with pytest.raises(ValueError, match="is 5 bytes long, and has 4 bytes"):
            encode(pieces._replace(data=[(b"he", b"ll")]))

    def test_too_much_data(self) -> None:
        with pytest.raises(ValueError, match="has 0 rows, and data for 1"):
            encode(WalObject(1, 4, 9, NONCE, [], [b"hello"]))

    def test_a_short_nonce(self) -> None:
        with pytest.raises(ValueError, match="has 16 bytes, not 4"):
            encode(WalObject(1, 4, 9, b"once", [], []))

    def test_negative_numbers(self) -> None:
        with pytest.raises(ValueError, match="must not be negative"):
            encode(WalObject(1, 4, -1, NONCE, [], []))
