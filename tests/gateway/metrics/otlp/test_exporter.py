"""The exports of a whole gateway in this process, to a real receiver."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from seqgate import __version__
from seqgate.gateway import gateway as composition
from seqgate.gateway.backends.backend import StartFailed
from seqgate.gateway.config import load_config
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.metrics import otlp as module
from seqgate.gateway.metrics.metric import Subject
from seqgate.gateway.metrics.otlp import OtlpExporter
from seqgate.gateway.metrics.table import METRICS, SUBJECTS, text_of
from seqgate.gateway.tasks import end_tasks
from tests.support.gateway_process import free_port
from tests.support.otlp_receiver import Export, OtlpReceiver, Reply

SELDOM = "seqgate.otlp.interval.ms=3600000"
"""After the first export the tests export themselves."""


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as found:
        yield found


def made(tmp_path: Path, receiver: OtlpReceiver, *more: str) -> Gateway:
    overrides = [
        f"log.dirs={tmp_path / 'data'}",
        "listeners=PLAINTEXT://127.0.0.1:0",
        f"seqgate.otlp.endpoint={receiver.url}?key=secret",
        SELDOM,
        *more,
    ]
    return Gateway(load_config(overrides=overrides))


def exporter_of(gateway: Gateway) -> OtlpExporter:
    assert gateway._metrics is not None
    assert gateway._metrics.exporter is not None
    return gateway._metrics.exporter


@asynccontextmanager
async def running(gateway: Gateway) -> AsyncIterator[OtlpExporter]:
    await gateway.start()
    try:
        yield exporter_of(gateway)
    finally:
        await gateway.stop()


async def next_of(receiver: OtlpReceiver) -> Export:
    return await asyncio.to_thread(receiver.next)


async def test_a_gateway_without_a_metrics_listener_exports_what_prometheus_would_get(
    tmp_path: Path, receiver: OtlpReceiver
) -> None:
    gateway = made(tmp_path, receiver)
    async with running(gateway) as exporter:
        assert gateway._metrics is not None
        assert gateway._metrics.listener is None
        await next_of(receiver)
        await exporter._export()
        export = await next_of(receiver)
        text = await text_of(exporter._sources, "application/openmetrics-text")
        services = gateway.services
    families = text_string_to_metric_families(text.body.decode())
    shown = {
        (sample.name.removesuffix("_bucket"), tuple(sorted(sample.labels.items())))
        for family in families
        for sample in family.samples
        if not sample.name.endswith(("_created", "_sum", "_count"))
        and sample.labels.get("le", "+Inf") == "+Inf"
    }
    shown = {(name, tuple(label for label in labels if label[0] != "le")) for name, labels in shown}
    sent = {
        (name, tuple(sorted((pair.key, pair.value.string_value) for pair in point.attributes)))
        for name, metric in export.metrics.items()
        for point in getattr(metric, metric.WhichOneof("data")).data_points
    }
    assert sent == shown
    assert export.resource == {
        "service.name": "seqgate",
        "service.instance.id": str(services.node.node_id),
        "service.version": __version__,
        "seqgate.cluster.id": services.node.cluster_id,
    }
    assert export.value("seqgate_ready") == 1
    assert export.metrics["seqgate_ready"].description == METRICS["seqgate_ready"].doc


async def test_counters_count_since_the_start_of_the_gateway(tmp_path: Path, receiver: OtlpReceiver) -> None:
    async with running(made(tmp_path, receiver)) as exporter:
        first = await next_of(receiver)
        await exporter._export()
        second = await next_of(receiver)
        started_at_ms = exporter._sources.gateway.started_at_ms
    for name in ("seqgate_producer_id_blocks_claimed_total", "seqgate_flush_round_duration_seconds"):
        points = [
            getattr(metric, metric.WhichOneof("data")).data_points[0]
            for metric in (first.metrics[name], second.metrics[name])
        ]
        assert {point.start_time_unix_nano for point in points} == {started_at_ms * 1_000_000}
        assert points[0].time_unix_nano <= points[1].time_unix_nano
    assert second.value("seqgate_producer_id_blocks_claimed_total") == 1


async def test_a_stop_exports_the_last_values(tmp_path: Path, receiver: OtlpReceiver) -> None:
    async with running(made(tmp_path, receiver)) as exporter:
        await next_of(receiver)
        exporter._sources.server.unread.dropped = 7
        assert receiver.exports.empty()
    assert receiver.next().value("seqgate_dropped_readers_total") == 7
    assert receiver.exports.empty()


async def test_a_stop_does_not_wait_long_for_a_collector(
    tmp_path: Path, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "STOP_TIMEOUT_S", 0.2)
    receiver.reply = Reply(held=threading.Event())
    gateway = made(tmp_path, receiver)
    await gateway.start()
    await next_of(receiver)  # which is not answered
    async with asyncio.timeout(60):
        await gateway.stop()
    assert "did not take the last metrics in time" in caplog.text


async def test_the_log_says_once_that_exports_fail_and_once_that_they_work(
    tmp_path: Path, receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[str]:
        messages = [record.getMessage() for record in caplog.records if record.name == module.__name__]
        caplog.clear()
        return messages

    with caplog.at_level(logging.INFO):
        async with running(made(tmp_path, receiver)) as exporter:
            await next_of(receiver)
            await exporter._export()
            assert told() == [f"sending metrics to {receiver.url} every 3600 s"]
            for reply, why in (
                (Reply(401), "it answers with status 401"),
                (Reply(503), "it answers with status 503"),
                (
                    Reply(body=b"<html>"),
                    "it answers with something else than OTLP; does the URL lead to a collector?",
                ),
            ):
                receiver.reply = reply
                for _ in range(3):
                    await exporter._export()
                assert told() == [f"the collector {receiver.url} takes no metrics: {why}"]
            receiver.reply = Reply()
            for _ in range(3):
                await exporter._export()
            assert told() == [f"the collector {receiver.url} takes metrics again"]
        assert told() == []
    assert "secret" not in caplog.text


async def test_a_mistake_of_the_gateway_is_told_once_and_ends_no_exports(
    tmp_path: Path, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Subject("Broken")

    @broken.reads
    def _failing(_: object) -> Iterator[None]:
        yield None
        raise KeyError("planted")

    async with running(made(tmp_path, receiver)) as exporter:
        await next_of(receiver)
        assert exporter._task is not None
        await end_tasks(exporter._task)  # its own export may end only now, and say that exports work
        with monkeypatch.context() as planted:
            planted.setattr(module, "SUBJECTS", (*SUBJECTS, broken))
            for _ in range(3):
                await exporter._export()
        assert caplog.text.count("can't be read") == 1
        assert receiver.exports.empty()
        await exporter._export()
        assert (await next_of(receiver)).value("seqgate_ready") == 1


async def test_a_collector_that_wants_a_pause_gets_no_export_meanwhile(
    tmp_path: Path, receiver: OtlpReceiver
) -> None:
    receiver.reply = Reply(429, headers={"Retry-After": "250"})
    async with running(made(tmp_path, receiver)) as exporter:
        await next_of(receiver)
        await asyncio.wait_for(_until(lambda: exporter._resumes_s > 0), 60)
        await exporter._export()
        assert receiver.exports.empty()
        exporter._resumes_s -= 250
        receiver.reply = Reply()
        await exporter._export()
        assert (await next_of(receiver)).metrics


async def test_a_collector_that_is_away_stops_nothing(
    tmp_path: Path, receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    away = SimpleNamespace(url=f"http://127.0.0.1:{free_port()}/v1/metrics")
    async with running(made(tmp_path, away)) as exporter:  # type: ignore[arg-type]
        await asyncio.wait_for(_until(lambda: exporter._failure is not None), 60)
        await exporter._export()
    assert caplog.text.count("it can't be reached") == 1


async def test_a_start_that_fails_after_the_composition_ends(tmp_path: Path, receiver: OtlpReceiver) -> None:
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    async with taken:
        address = f"127.0.0.1:{taken.sockets[0].getsockname()[1]}"
        with pytest.raises(StartFailed, match="can't listen for metrics"):
            await made(tmp_path, receiver, f"seqgate.metrics.listener={address}").start()
    assert receiver.exports.empty()


async def test_a_start_without_the_extra_is_refused(
    tmp_path: Path, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(composition, "missing_package", lambda config: "the package httpx is missing")
    with pytest.raises(StartFailed, match="the package httpx is missing"):
        await made(tmp_path, receiver).start()
    assert not (tmp_path / "data").exists()


async def _until(condition: object) -> None:
    assert callable(condition)
    while not condition():
        await asyncio.sleep(0)
