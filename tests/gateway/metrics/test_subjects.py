"""Metrics that alerts need: the expiry of certificates, the uptime, and refusals that begin at zero."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seqgate.gateway.admin.operations import answer_live
from seqgate.gateway.admin.status import StatusRequest
from seqgate.gateway.config import load_config
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.metrics.metric import Sources
from seqgate.gateway.metrics.table import text_of
from tests.gateway.handlers.support import FixedClock
from tests.support.certificates import Authority


@pytest.fixture
async def sources(tmp_path: Path) -> AsyncIterator[Sources]:
    """What the metrics of a gateway with two TLS listeners are read from."""
    store = Authority().listener().write_pem(tmp_path / "gateway.pem")
    overrides = [
        f"log.dirs={tmp_path / 'data'}",
        "listeners=PLAIN://127.0.0.1:0,INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "listener.security.protocol.map=PLAIN:PLAINTEXT,INSIDE:SSL,OUTSIDE:SSL",
        "inter.broker.listener.name=PLAIN",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={store}",
        "seqgate.metrics.listener=127.0.0.1:0",
    ]
    gateway = Gateway(load_config(overrides=overrides))
    await gateway.start()
    try:
        assert gateway._metrics is not None
        assert gateway._metrics.listener is not None
        yield gateway._metrics.listener._sources
    finally:
        await gateway.stop()


async def test_the_expiry_of_the_certificate_of_each_tls_listener_is_shown(sources: Sources) -> None:
    text = (await text_of(sources, "")).body.decode()
    for name in ("INSIDE", "OUTSIDE"):
        until_s = sources.services.node.tls_listeners[name].valid_until_ms / 1000
        assert until_s > sources.services.node.clock.now_ms() / 1000
        (line,) = [line for line in text.splitlines() if f'listener="{name}"' in line]
        assert line.startswith("seqgate_certificate_expires_timestamp_seconds{")
        assert float(line.split()[-1]) == until_s
    assert 'listener="PLAIN"' not in text


async def test_a_clock_that_is_set_changes_no_uptime(
    sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FixedClock()
    monkeypatch.setattr(sources.services.node, "clock", clock)
    clock.time_ms = 0
    text = (await text_of(sources, "")).body.decode()
    (line,) = [line for line in text.splitlines() if line.startswith("seqgate_uptime_seconds ")]
    assert float(line.split()[-1]) >= 0
    assert (await answer_live(sources.gateway, StatusRequest())).uptime_ms >= 0


async def test_the_errors_that_alerts_watch_begin_at_zero(sources: Sources) -> None:
    refused = sources.services.partitions.counters.verdicts.refused
    text = (await text_of(sources, "")).body.decode()
    for error in ("out_of_order_sequence_number", "invalid_producer_epoch"):
        assert f'seqgate_producer_refused_batches_total{{error="{error}"}} 0.0\n' in text
    refused[45] += 2
    refused[87] += 1
    text = (await text_of(sources, "")).body.decode()
    assert 'seqgate_producer_refused_batches_total{error="out_of_order_sequence_number"} 2.0\n' in text
    assert 'seqgate_producer_refused_batches_total{error="invalid_record"} 1.0\n' in text
