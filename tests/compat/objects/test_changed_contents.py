"""A content that changes on its way to a store without TLS is refused by the store, and its creation can be
repeated.
"""

from __future__ import annotations

import hashlib

import pytest

from seqgate.gateway.cluster.objects.objects import Missing, StoreFailed
from tests.compat.objects.conftest import S3_STORES, Server
from tests.support.fault_proxy import Fault, FaultProxy

LOOPBACK = ("127.0.0.1", "localhost")
ELSEWHERE = "127.1"
"""The proxy's host in a form that the gateway does not know as the loopback."""
CONTENT = b"content" * 10_000
COMPARING_STORES = [name for name in S3_STORES if name != "moto"]
"""moto compares no checksum."""


@pytest.mark.parametrize("host", LOOPBACK)
async def test_a_put_on_the_loopback_has_a_checksum(
    server: Server, proxy: FaultProxy, prefix: str, host: str
) -> None:
    await server.objects(prefix, host=host, port=proxy.port).create("a", [CONTENT[:10], CONTENT[10:]])
    assert "x-amz-content-sha256: unsigned-payload" in proxy.last_head
    assert "x-amz-checksum-crc64nvme: " in proxy.last_head
    [signed] = [line for line in proxy.last_head.splitlines() if line.startswith("authorization: ")]
    assert "x-amz-checksum-crc64nvme" in signed, "nobody can change the checksum with the content"


async def test_a_put_over_a_network_without_tls_is_signed(
    server: Server, proxy: FaultProxy, prefix: str
) -> None:
    await server.objects(prefix, host=ELSEWHERE, port=proxy.port).create("a", [CONTENT[:10], CONTENT[10:]])
    assert f"x-amz-content-sha256: {hashlib.sha256(CONTENT).hexdigest()}" in proxy.last_head


@pytest.mark.parametrize("server", COMPARING_STORES, indirect=True)
@pytest.mark.parametrize("host", [*LOOPBACK, ELSEWHERE])
async def test_the_store_refuses_a_content_that_has_changed(
    server: Server, proxy: FaultProxy, prefix: str, host: str
) -> None:
    objects = server.objects(prefix, host=host, port=proxy.port)
    proxy.plan("PUT", Fault.FLIPPED_BODY)
    with pytest.raises(StoreFailed):
        await objects.create("a", CONTENT)
    with pytest.raises(Missing):
        await objects.get("a")
    await objects.create("a", CONTENT)
    assert await objects.get("a") == CONTENT
