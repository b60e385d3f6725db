from __future__ import annotations

import pytest

from seqgate.gateway.protocol.frames import size_complaint


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"GET ", "its first bytes are 'GET ', which looks like HTTP"),
        (b"PRI ", "which looks like HTTP"),
        (b"\x16\x03\x01\x02", "look like TLS; this listener speaks plaintext"),
        (b"\x16\x04\x01\x02", "at most 100 are allowed (socket.request.max.bytes)"),
        (b"\xff\xff\xff\xfb", "a request of -5 bytes, so it does not speak Kafka's protocol"),
        (b"\x00\x01\x00\x00", "a request of 65536 bytes; at most 100 are allowed (socket.request.max.bytes)"),
    ],
)
def test_the_first_bytes_tell_what_a_client_speaks(first: bytes, said: str) -> None:
    assert said in size_complaint(int.from_bytes(first, "big", signed=True), 100)
