"""The frames of a connection are the same, however its bytes are split."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.protocol.frames import MalformedRequest
from seqgate.gateway.server import intake
from seqgate.gateway.server.intake import FrameReader


def feed(reader: FrameReader, piece: bytes) -> list[bytes]:
    """Do what a connection does with bytes that arrived in the shared buffer."""
    frames = []
    view = memoryview(piece)
    position = 0
    while position < len(view):
        if reader.in_parts:
            if reader.growth_bytes:
                reader.grow()
            frame, position = reader.add(view, position)
            if frame is not None:
                frames.append(bytes(frame))
            continue
        size, position = reader.next_size(view, position)
        if size < 0:
            break
        if len(view) - position >= size:
            frames.append(bytes(view[position : position + size]))
            position += size
        else:
            reader.start(size)
    return frames


@given(
    frames=st.lists(st.binary(min_size=1, max_size=3000), max_size=12),
    cuts=st.lists(st.integers(0, 30_000), max_size=20),
)
def test_frames_survive_any_cut(frames: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    bounds = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    reader = FrameReader(1 << 20)
    got = []
    for start, end in itertools.pairwise(bounds):
        got += feed(reader, stream[start:end])
    assert got == frames


def test_a_large_frame_is_read_straight_into_its_own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "FIRST_PART_BYTES", 1 << 15)
    payload = bytes(range(256)) * 1024
    reader = FrameReader(1 << 20)
    assert feed(reader, len(payload).to_bytes(4, "big") + payload[:10]) == []
    sent = 10
    frame = None
    while (buffer := reader.direct_buffer()) is not None or reader.growth_bytes:
        if buffer is None:
            reader.grow()
            continue
        assert len(buffer) <= len(payload) - sent
        buffer[:] = payload[sent : sent + len(buffer)]
        sent += len(buffer)
        frame = reader.wrote_direct(len(buffer))
    assert frame is None or bytes(frame) == payload
    if frame is None:
        assert feed(reader, payload[sent:]) == [payload]


@pytest.mark.parametrize("size", [-1, (1 << 20) + 1, 2**31 - 1])
def test_a_size_over_the_limit_is_malformed(size: int) -> None:
    with pytest.raises(MalformedRequest):
        FrameReader(1 << 20).next_size(memoryview(size.to_bytes(4, "big", signed=True)), 0)


def test_announcing_much_takes_little_memory() -> None:
    reader = FrameReader(1 << 30)
    reader.start(1 << 30)
    buffer = reader.direct_buffer()
    assert buffer is not None
    assert len(buffer) == intake.FIRST_PART_BYTES
