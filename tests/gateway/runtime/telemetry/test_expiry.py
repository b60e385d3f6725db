"""A running gateway forgets silent clients by itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from seqgate.gateway.config import load_config
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.runtime.telemetry import Telemetry
from seqgate.gateway.runtime.upkeep import background_jobs


async def test_the_gateway_expires_clients_at_intervals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = asyncio.Event()
    monkeypatch.setattr(background_jobs, "EXPIRE_EVERY_S", 0.01)
    monkeypatch.setattr(Telemetry, "expire", lambda _: ran.set())
    gateway = Gateway(
        load_config(overrides=[f"log.dirs={tmp_path / 'data'}", "listeners=PLAINTEXT://127.0.0.1:0"])
    )
    await gateway.start()
    try:
        await asyncio.wait_for(ran.wait(), 60)
    finally:
        await gateway.stop()
