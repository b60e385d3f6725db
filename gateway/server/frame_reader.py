"""Cuts the bytes of one connection into frames without copying frames that arrive whole.

Complete frames are handed on as views of the receive buffer that all connections share. Only a frame that arrives in
parts gets memory of its own. This memory grows with the bytes that really arrive, up to the limits of the connection.
"""

from __future__ import annotations

from gateway.protocol.frames import MalformedRequest
from gateway.protocol.strangers import size_complaint

SIZE_BYTES = 4
FIRST_PART_BYTES = 8 << 10
"""The first memory (bytes) of a frame that arrives in parts, whatever size the frame announces. A frame whose first part
is large gets GROWTH times the bytes of that part, if these are more.
"""
GROWTH = 4
"""The most memory of a frame, as a multiple of the bytes that have arrived. Each growth copies these bytes."""
DIRECT_BYTES = 16 << 10
"""With more bytes than this missing, the socket is read straight into the frame's own memory."""


class FrameReader:
    """The incomplete frame of one connection."""

    __slots__ = ("_filled", "_frame", "_prefix", "between_frames", "frame_size", "frames", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.between_frames = True
        """Whether no byte of the next frame has arrived."""
        self._prefix = b""
        self._frame: bytearray | None = None
        self._filled = 0
        self.frame_size = -1
        """The size of the incomplete frame; −1 while its size has not arrived."""
        self.frames = 0
        """The number of completed frames that arrived in parts, since the start."""

    def direct_buffer(self) -> memoryview | None:
        """Return the memory that the socket may write straight to, when many bytes are missing."""
        frame = self._frame
        if frame is None or self.frame_size - self._filled < DIRECT_BYTES or self._filled == len(frame):
            return None
        return memoryview(frame)[self._filled :]

    @property
    def arrived_bytes(self) -> int:
        """Return how many bytes of the incomplete frame have arrived, its size field included."""
        return len(self._prefix) if self._frame is None else SIZE_BYTES + self._filled

    @property
    def growth_bytes(self) -> int:
        """Return by how many bytes the frame's memory must grow before it can take more bytes."""
        frame = self._frame
        if frame is None or self._filled < len(frame):
            return 0
        return min(self.frame_size, GROWTH * len(frame)) - len(frame)

    def grow(self) -> None:
        """Make room for `growth_bytes` more bytes."""
        assert self._frame is not None
        grown = bytearray(len(self._frame) + self.growth_bytes)
        grown[: self._filled] = self._frame
        self._frame = grown

    def wrote_direct(self, size: int) -> memoryview | None:
        """Count `size` bytes that the socket wrote to the direct buffer; return the frame if it is complete."""
        self._filled += size
        return self._complete()

    def next_size(self, view: memoryview, position: int) -> tuple[int, int]:
        """Return the size of the next frame (−1 if it has not arrived) and the position after this field.

        Raises MalformedRequest for a size that is negative or over the limit.
        """
        missing = SIZE_BYTES - len(self._prefix)
        if len(view) - position < missing:
            self._prefix += view[position:]
            self.between_frames = False
            return -1, len(view)
        if self._prefix:
            raw = self._prefix + bytes(view[position : position + missing])
            self._prefix = b""
            self.between_frames = True
            self.frames += 1
        else:
            raw = bytes(view[position : position + SIZE_BYTES])
        size = int.from_bytes(raw, "big", signed=True)
        if not 0 <= size <= self.max_bytes:
            raise MalformedRequest(size_complaint(size, self.max_bytes))
        return size, position + missing

    def start(self, size: int, memory_bytes: int = FIRST_PART_BYTES) -> None:
        """Begin an incomplete frame; its memory has at first `memory_bytes` at most."""
        self.frame_size = size
        self.between_frames = False
        self._frame = bytearray(min(size, memory_bytes))
        self._filled = 0

    @property
    def in_parts(self) -> bool:
        return self._frame is not None

    def add(self, view: memoryview, position: int) -> tuple[memoryview | None, int]:
        """Copy bytes into the frame in parts, as many as it has memory for.

        Return the frame if it is complete now, and the position after the copied bytes.
        """
        frame = self._frame
        assert frame is not None
        part = min(len(view) - position, len(frame) - self._filled)
        frame[self._filled : self._filled + part] = view[position : position + part]
        self._filled += part
        return self._complete(), position + part

    def _complete(self) -> memoryview | None:
        if self._filled < self.frame_size:
            return None
        frame, self._frame = self._frame, None
        self.between_frames = True
        self.frames += 1
        assert frame is not None
        return memoryview(frame).toreadonly()
