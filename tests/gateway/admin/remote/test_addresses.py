"""The addresses of `--bootstrap` are parsed."""

from __future__ import annotations

import pytest

from seqgate.gateway.admin.remote.addresses import parse_addresses, shown_address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9092", (("127.0.0.1", 9092),)),
        ("one:1, two:65535", (("one", 1), ("two", 65535))),
        ("[::1]:9092", (("::1", 9092),)),
    ],
)
def test_what_is_understood(text: str, expected: tuple[tuple[str, int], ...]) -> None:
    assert parse_addresses(text) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("localhost", "'localhost': a port is missing; write HOST:PORT, such as 127.0.0.1:9092"),
        ("[::1]", "'[::1]': a port is missing; write HOST:PORT, such as 127.0.0.1:9092"),
        ("::1:9092", "'::1:9092': an IPv6 address stands in brackets, such as [::1]:9092"),
        ("PLAINTEXT://a:1", "'PLAINTEXT://a:1' must be HOST:PORT, without PLAINTEXT://"),
        ("a:0", "port 0 of a:0 is not between 1 and 65535"),
        ("a:65536", "port 65536 of a:65536 is not between 1 and 65535"),
        ("a:x", "'a:x' must be HOST:PORT, such as 127.0.0.1:9092"),
        ("a:1,", "'': a port is missing; write HOST:PORT, such as 127.0.0.1:9092"),
    ],
)
def test_what_is_not(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=r"port|HOST|brackets") as raised:
        parse_addresses(text)
    assert str(raised.value) == complaint


def test_ipv6_addresses_are_shown_in_brackets() -> None:
    assert (shown_address("::1", 9092), shown_address("host", 1)) == ("[::1]:9092", "host:1")
