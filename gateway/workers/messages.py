"""The messages between a worker and its supervisor, on one stream each way. A frame is a length (uint32, big-endian) and msgpack."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

import msgspec

LENGTH_BYTES: Final = 4
MAX_FRAME_BYTES: Final = 1 << 30
"""A frame of more bytes ends the stream: the other process has gone wrong."""
OF_OTHERS: Final = -1
"""The number of a change that another process asked for."""


class Commit(msgspec.Struct, tag="commit", frozen=True):
    """A worker asks to append encoded metadata records, if the log still ends at `end_offset`. The answer has the same number."""

    number: int
    end_offset: int
    records: list[bytes]


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """A worker serves: the advertised address of each listener by its name, and the addresses that it is bound to."""

    endpoints: dict[str, tuple[str, int]]
    bound: list[str]


class Alive(msgspec.Struct, tag="alive", frozen=True):
    """A worker answers a ping."""


class Left(msgspec.Struct, tag="left", frozen=True):
    """A worker has carried out the deletion of a topic: it has let the topic's logs go, and uses their directories no more."""

    topic_id: uuid.UUID


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """A worker can't start, or must not go on; the sentence says why."""

    sentence: str


class Change(msgspec.Struct, tag="change", frozen=True):
    """These encoded records are durable in the metadata log, which ends at `end_offset` with them.

    `number` is that of the worker's own commit; OF_OTHERS for any other change.
    """

    end_offset: int
    records: list[bytes]
    number: int = OF_OTHERS


class Refused(msgspec.Struct, tag="refused", frozen=True):
    """A commit was not carried out: another change was first, and was sent before; or `error` says what failed."""

    number: int
    error: str | None = None


class Ping(msgspec.Struct, tag="ping", frozen=True):
    """The supervisor asks for a sign of life."""


FromWorker = Commit | Ready | Alive | Left | Failed
FromSupervisor = Change | Refused | Ping
from_worker: Final[msgspec.msgpack.Decoder[FromWorker]] = msgspec.msgpack.Decoder(FromWorker)
from_supervisor: Final[msgspec.msgpack.Decoder[FromSupervisor]] = msgspec.msgpack.Decoder(FromSupervisor)
T = TypeVar("T")


class BadFrame(Exception):
    """The stream is not one of frames."""


def encode(message: FromWorker | FromSupervisor) -> bytes:
    """Return the frame of a message."""
    content = msgspec.msgpack.encode(message)
    return len(content).to_bytes(LENGTH_BYTES, "big") + content


class Frames(Generic[T]):
    """The bytes that came from a stream, cut into messages."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[T]) -> None:
        """Begin with an empty buffer."""
        self._decoder = decoder
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[T]:
        """Add bytes, and yield the messages that are complete. Raises BadFrame."""
        self._buffer += data
        while len(self._buffer) >= LENGTH_BYTES:
            size_bytes = int.from_bytes(self._buffer[:LENGTH_BYTES], "big")
            if size_bytes > MAX_FRAME_BYTES:
                raise BadFrame(f"a frame has at most {MAX_FRAME_BYTES} bytes, not {size_bytes}")
            end = LENGTH_BYTES + size_bytes
            if len(self._buffer) < end:
                return
            content = bytes(self._buffer[LENGTH_BYTES:end])
            del self._buffer[:end]
            try:
                message = self._decoder.decode(content)
            except msgspec.MsgspecError as error:
                raise BadFrame(f"a message can't be decoded: {error}") from error
            yield message
