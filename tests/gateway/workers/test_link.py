from __future__ import annotations

import pytest

from seqgate.gateway.workers.link import (
    Alive,
    BadFrame,
    Commit,
    CommittedChange,
    Frames,
    Ping,
    Ready,
    encode,
    from_supervisor,
    from_worker,
)


def test_frames_may_come_in_any_pieces() -> None:
    sent = [Commit(1, 7, [b"a", b""]), Alive(), Ready({"PLAINTEXT": ("h", 1)}, ["h:1"])]
    stream = b"".join(map(encode, sent))
    for size in (1, 3, len(stream)):
        frames = Frames(from_worker)
        pieces = [stream[begin : begin + size] for begin in range(0, len(stream), size)]
        assert [message for piece in pieces for message in frames.feed(piece)] == sent


def test_a_reader_that_stops_gets_the_rest_later() -> None:
    frames = Frames(from_supervisor)
    reading = frames.feed(encode(Ping()) + encode(CommittedChange(3, [b"x"])))
    assert next(reading) == Ping()
    reading.close()
    assert list(frames.feed(b"")) == [CommittedChange(3, [b"x"])]


@pytest.mark.parametrize(
    "stream", [b"\xff\xff\xff\xff", b"\0\0\0\1\xc1", encode(Ping())], ids=["size", "content", "way"]
)
def test_what_is_no_message_is_refused(stream: bytes) -> None:
    with pytest.raises(BadFrame):
        list(Frames(from_worker).feed(stream))
