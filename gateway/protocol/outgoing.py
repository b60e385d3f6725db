"""Requests that a gateway sends, and the answers to them: the client's side of the Kafka protocol, by kio's
schemas.

Error codes of answers are plain numbers, as everywhere in `schema_reader`.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from seqgate.gateway.protocol.frames import MalformedRequest, skip_tagged_fields
from seqgate.gateway.protocol.messages import API_VERSIONS, response_type
from seqgate.gateway.protocol.schema import entity_reader, entity_writer

_HEAD: Final = Struct(">ihhih")
_SIZE_BYTES: Final = 4
_CORRELATION_ID: Final = Struct(">i")


def encode_request(request: Any, correlation_id: int, client_id: bytes) -> bytes:
    """Return the whole frame of a request of kio: size, request header v1 or v2, body."""
    entity_type: Any = type(request)
    pieces = [b"", client_id]
    if entity_type.__flexible__:
        pieces.append(b"\0")
    entity_writer(entity_type)(pieces.append, request)
    size = sum(map(len, pieces)) + _HEAD.size - _SIZE_BYTES
    pieces[0] = _HEAD.pack(
        size, entity_type.__api_key__, entity_type.__version__, correlation_id, len(client_id)
    )
    return b"".join(pieces)


def correlation_id_of(frame: bytes) -> int:
    """Return the correlation id of an answer, a frame without its size. Raises MalformedRequest."""
    if len(frame) < _CORRELATION_ID.size:
        raise MalformedRequest(f"the answer has {len(frame)} bytes, fewer than its header")
    number: int = _CORRELATION_ID.unpack_from(frame)[0]
    return number


def decode_answer(request: Any, frame: bytes) -> Any:
    """Return the answer to a request: kio's response of the same version. `frame` comes without its size.

    Raises MalformedRequest.
    """
    api_key: int = request.__api_key__
    entity_type = response_type(api_key, request.__version__)
    position = _CORRELATION_ID.size
    if entity_type.__flexible__ and api_key != API_VERSIONS:
        position = skip_tagged_fields(frame, position)
    response, _ = entity_reader(entity_type)(memoryview(frame), position)
    return response
