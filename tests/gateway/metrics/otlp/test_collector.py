"""One export to a real HTTP server, whatever the server answers."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)

from seqgate.gateway.metrics import otlp
from seqgate.gateway.metrics.otlp import (
    MAX_ANSWER_BYTES,
    MAX_PAUSE_S,
    Collector,
    ExportFailed,
    encoded_request,
)
from tests.support.certificates import Authority
from tests.support.gateway_process import free_port
from tests.support.otlp_receiver import OtlpReceiver, Reply

BODY = encoded_request({"service.name": "seqgate"}, [])
TAKEN = ExportMetricsServiceResponse().SerializeToString()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as found:
        yield found


@asynccontextmanager
async def opened(url: str, headers: dict[str, str] | None = None) -> AsyncIterator[Collector]:
    found = Collector(url, headers or {})
    try:
        yield found
    finally:
        await found.close()


async def failure_of(url: str) -> ExportFailed:
    async with opened(url) as found:
        with pytest.raises(ExportFailed) as caught:
            await found.send(BODY)
    return caught.value


async def test_an_export_is_a_compressed_post_with_the_headers_of_the_operator(
    receiver: OtlpReceiver,
) -> None:
    async with opened(receiver.url, {"authorization": "Bearer x"}) as found:
        await found.send(BODY)
    export = receiver.next()
    assert (export.path, export.resource) == ("/v1/metrics", {"service.name": "seqgate"})
    assert export.headers["authorization"] == "Bearer x"
    assert export.headers["content-type"] == "application/x-protobuf"


@pytest.mark.parametrize("body", [b"", TAKEN, b"\xfa\x7f\x01x"], ids=["empty", "taken", "unknown field"])
async def test_an_answer_of_otlp_is_taken(receiver: OtlpReceiver, body: bytes) -> None:
    receiver.reply = Reply(body=body)
    async with opened(receiver.url) as found:
        await found.send(BODY)


async def test_values_that_the_collector_refuses_are_a_failure(receiver: OtlpReceiver) -> None:
    partial = ExportMetricsPartialSuccess(rejected_data_points=7, error_message="too old\nreally")
    receiver.reply = Reply(body=ExportMetricsServiceResponse(partial_success=partial).SerializeToString())
    failure = await failure_of(receiver.url)
    assert str(failure) == "it refuses some values: 7 values; too old really"


@pytest.mark.parametrize(
    "body",
    [
        b"<!doctype html><html>",
        b"{}",
        b"\x00" * 10,
        b"\x0a" + b"\xff" * 200,
        TAKEN * 1 + b"\xfa\x7f\x01x" * MAX_ANSWER_BYTES,
    ],
    ids=["html", "json", "zeros", "cut short", "endless"],
)
async def test_garbage_is_a_failure(receiver: OtlpReceiver, body: bytes) -> None:
    receiver.reply = Reply(body=body)
    assert "something else than OTLP" in str(await failure_of(receiver.url))


@pytest.mark.parametrize(
    ("status", "retry_after", "pause_s"),
    [
        (429, "7", 7),
        (503, "7", 7),
        (503, "86400", MAX_PAUSE_S),
        (503, "", 0),
        (429, "Fri, 31 Dec 1999 23:59:59 GMT", 0),
        (429, "Fri, 31 Dec 9998 23:59:59 GMT", MAX_PAUSE_S),
        (429, "Fri, 31 Dec 1999", 0),
        (429, "-5", 0),
        (400, "7", 0),
        (401, "", 0),
        (404, "", 0),
        (202, "", 0),
        (500, "7", 0),
    ],
)
async def test_a_status_is_a_failure_with_the_pause_that_the_collector_wants(
    receiver: OtlpReceiver, status: int, retry_after: str, pause_s: float
) -> None:
    receiver.reply = Reply(status, b"no", {"Retry-After": retry_after})
    failure = await failure_of(receiver.url)
    assert (str(failure), failure.pause_s) == (f"it answers with status {status}", pause_s)


async def test_a_redirect_is_not_followed(receiver: OtlpReceiver) -> None:
    receiver.reply = Reply(307, headers={"Location": receiver.url + "/elsewhere"})
    assert str(await failure_of(receiver.url)) == "it answers with status 307"
    assert receiver.exports.qsize() == 1


async def test_a_collector_that_is_away_is_a_failure() -> None:
    failure = await failure_of(f"http://127.0.0.1:{free_port()}/v1/metrics")
    assert failure.kind == "it can't be reached"


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "nonsense://127.0.0.1:1"])
async def test_a_proxy_of_an_unknown_kind_is_a_failure(
    receiver: OtlpReceiver, proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("ALL_PROXY", proxy)
    failure = await failure_of(receiver.url)
    assert failure.kind == "it can't be reached"


async def test_a_file_of_authorities_that_is_missing_is_a_failure(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    failure = await failure_of(receiver.url.replace("http://", "https://"))
    assert failure.kind == "it can't be reached"


async def test_a_certificate_must_be_signed_by_a_known_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.listener().write_pem(tmp_path / "collector.pem"))
    with OtlpReceiver(context=context) as receiver:
        failure = await failure_of(receiver.url)
        assert "certificate verify failed" in str(failure)
        assert receiver.exports.empty()
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.write(tmp_path / "ca.pem")))
        async with opened(receiver.url) as found:
            await found.send(BODY)
        assert receiver.next().resource == {"service.name": "seqgate"}


async def test_a_server_that_speaks_no_http_is_a_failure() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"\x15\x03\x01\x00\x02\x02\x50" * 3)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        failure = await failure_of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    assert failure.kind == "it can't be reached"


async def test_a_collector_that_does_not_answer_is_given_up(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "TIMEOUT_S", 0.2)
    receiver.reply = Reply(held=threading.Event())
    assert str(await failure_of(receiver.url)) == "it does not answer within 0.2 s"


async def test_a_collector_that_dribbles_its_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "TIMEOUT_S", 0.3)
    stopped = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not stopped.is_set():
            writer.write(b"x")
            try:
                await asyncio.wait_for(stopped.wait(), 0.01)
            except TimeoutError:
                continue
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        failure = await failure_of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        stopped.set()
    assert "does not answer" in str(failure)


async def test_an_export_after_a_failed_one_works(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "TIMEOUT_S", 0.2)
    held = threading.Event()
    receiver.reply = Reply(held=held)
    async with opened(receiver.url) as found:
        with pytest.raises(ExportFailed):
            await found.send(BODY)
        held.set()
        receiver.reply = Reply(503)
        with pytest.raises(ExportFailed):
            await found.send(BODY)
        receiver.reply = Reply()
        monkeypatch.setattr(otlp, "TIMEOUT_S", 10.0)
        before = receiver.exports.qsize()  # on a busy machine the first ones may not have been sent in time
        await found.send(BODY)
    assert receiver.exports.qsize() > before
