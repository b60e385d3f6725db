"""One open connection to another gateway: requests go out in the order of the calls, and answers come in that order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from struct import Struct
from typing import Any, Final, NamedTuple

from gateway.peer.errors import PeerUnavailable
from gateway.protocol.frames import MalformedRequest
from gateway.protocol.outgoing import correlation_id_of, decode_answer, encode_request

logger = logging.getLogger(__name__)

MOST_ANSWER_BYTES: Final = 64 << 20
"""Bytes of the largest answer; a larger one closes the connection."""
_SIZE: Final = Struct(">i")
_HIGHEST_CORRELATION_ID: Final = 2**31 - 1


class _Asked(NamedTuple):
    """A request that was sent, at `sent_s` of the loop's time, and the future of its answer."""

    correlation_id: int
    sent_s: float
    request: Any
    answer: asyncio.Future[Any]


class PeerConnection:
    """A connection that is ready for requests, or was closed. A closed one answers every request with PeerUnavailable."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: bytes) -> None:
        """Begin to read answers."""
        self._reader = reader
        self._writer = writer
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._asked: deque[_Asked] = deque()
        self._correlation_id = 0
        self.closed_because: str | None = None
        """Why the connection is closed; None while it is open."""
        self.heard_s = self._loop.time()
        """The time (s) at which the last answer came, or the connection opened."""
        self._reading = self._loop.create_task(self._read())

    @property
    def in_flight(self) -> int:
        """The number of requests without an answer."""
        return len(self._asked)

    def silent_s(self) -> float:
        """Return for how long (s) a request has waited without any answer on the connection; 0 without a request."""
        return self._loop.time() - max(self._asked[0].sent_s, self.heard_s) if self._asked else 0.0

    def send(self, request: Any) -> asyncio.Future[Any]:
        """Send a request; return the future of its answer, which raises PeerUnavailable when the connection breaks.

        The caller may cancel the future: the answer is then dropped when it comes.
        """
        answer: asyncio.Future[Any] = self._loop.create_future()
        if self.closed_because is not None:
            answer.set_exception(PeerUnavailable(self.closed_because))
            return answer
        self._correlation_id = self._correlation_id % _HIGHEST_CORRELATION_ID + 1
        frame = encode_request(request, self._correlation_id, self._client_id)
        self._asked.append(_Asked(self._correlation_id, self._loop.time(), request, answer))
        self._writer.write(frame)
        return answer

    def close(self, reason: str) -> None:
        """Close the connection; the requests in flight raise PeerUnavailable with this reason."""
        if self.closed_because is not None:
            return
        self.closed_because = reason
        self._reading.cancel()
        self._writer.transport.abort()
        while self._asked:
            answer = self._asked.popleft().answer
            if not answer.done():
                answer.set_exception(PeerUnavailable(reason))

    async def finished(self) -> None:
        """Wait until a closed connection has ended its reading."""
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        try:
            while True:
                (size,) = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))
                _check_size(size)
                self._take(await self._reader.readexactly(size))
        except asyncio.IncompleteReadError:
            self.close("the connection was closed")
        except OSError as error:
            self.close(f"the connection broke: {error.strerror or error}")
        except MalformedRequest as error:
            self.close(f"an answer is malformed: {error}")
        except Exception as error:
            logger.exception("an answer of another gateway can't be read")
            self.close(f"an answer can't be read: {type(error).__name__}")

    def _take(self, frame: bytes) -> None:
        """Hand out one answer. Raises MalformedRequest."""
        self.heard_s = self._loop.time()
        number = correlation_id_of(frame)
        if not self._asked or self._asked[0].correlation_id != number:
            raise MalformedRequest(f"an answer to request {number}, which was not the next")
        asked = self._asked[0]
        response = decode_answer(asked.request, frame)
        self._asked.popleft()
        if not asked.answer.done():
            asked.answer.set_result(response)


def _check_size(size: int) -> None:
    if not 0 <= size <= MOST_ANSWER_BYTES:
        raise MalformedRequest(f"an answer claims {size} bytes; at most {MOST_ANSWER_BYTES} are allowed")
