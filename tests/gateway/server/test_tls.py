"""The stores of a running listener: which alterations it refuses, and which certificate it shows when files
and settings change.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from seqgate.gateway.config import Config, load_config
from seqgate.gateway.runtime.loop.clock import Clock, SystemClock
from seqgate.gateway.security.certificates import StoreError
from seqgate.gateway.server.tls import TlsListener
from tests.support.certificates import Authority

DAY_MS = 86_400_000
PREFIX = "listener.name.ssl.ssl."


class Scene:
    """A listener whose settings the test alters."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.authority = Authority()
        self.folder = folder
        own = ("listeners=SSL://127.0.0.1:0", f"ssl.keystore.location={self.store('own')}")
        self.config = load_config(overrides=[*own, *settings])
        self.listener = TlsListener(asyncio.get_running_loop(), self.config, "SSL")
        self.first = self.listener.context()

    def store(self, name: str, common_name: str = "localhost") -> Path:
        return self.authority.listener(common_name).write_pem(self.folder / f"{name}.pem")

    def proposed(self, **values: object) -> Config:
        return self.config.with_dynamic(self._named(values))

    def alter(self, **values: object) -> None:
        self.config.set_dynamic(self._named(values), all_brokers=False)

    @staticmethod
    def _named(values: dict[str, object]) -> dict[str, str]:
        return {PREFIX + name.replace("_", "."): str(value) for name, value in values.items()}

    async def changed(self) -> None:
        """Wait until new connections get another context."""
        async with asyncio.timeout(60):
            while self.listener.context() is self.first:
                await asyncio.sleep(0.001)


class _Clock(Clock):
    def __init__(self) -> None:
        self.time_ms = SystemClock().now_ms()

    def now_ms(self) -> int:
        return self.time_ms


async def test_a_certificate_is_warned_of_two_weeks_before_it_expires_and_again_each_day(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Authority().listener().write_pem(tmp_path / "own.pem")  # valid for 30 days
    loop, clock = asyncio.get_running_loop(), _Clock()
    config = load_config(overrides=[f"ssl.keystore.location={own}"])
    listener = TlsListener(loop, config, "SSL", clock)
    now_s, begun_ms = loop.time(), clock.time_ms

    def warned(days: float) -> list[str]:
        clock.time_ms = begun_ms + int(days * DAY_MS)
        monkeypatch.setattr(loop, "time", lambda: now_s + days * DAY_MS / 1000)
        caplog.clear()
        listener.context()
        return [record.getMessage().partition(": ")[2].partition(" (")[0] for record in caplog.records]

    end = "; replace it before, otherwise clients refuse it"
    assert abs(listener.valid_until_ms - begun_ms - 30 * DAY_MS) < 60_000
    assert warned(10) == []
    assert warned(17.5) == [f"the certificate expires in 12 days{end}"]
    assert warned(17.6) == []
    assert warned(28.8) == [f"the certificate expires in 1 day{end}"]
    assert warned(29.9) == [f"the certificate expires in less than a day{end}"]
    assert warned(31) == ["the certificate has expired, so clients refuse it"]


async def test_what_was_checked_counts_as_soon_as_the_settings_have_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    new = scene.store("new")
    await scene.listener.check(scene.proposed(keystore_location=new))
    assert scene.listener.context() is scene.first
    new.unlink()  # the store must be read only once
    scene.alter(keystore_location=new)
    assert scene.listener._present.context is not scene.first


async def test_what_was_checked_for_other_settings_is_forgotten(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    await scene.listener.check(scene.proposed(keystore_location=scene.store("new")))
    scene.listener.take_checked()
    assert scene.listener.context() is scene.first
    scene.listener.take_checked()
    assert scene.listener.context() is scene.first


async def test_altered_settings_that_nobody_checked_are_read_in_a_thread(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.alter(keystore_location=scene.store("new"))
    assert scene.listener.context() is scene.first
    await scene.changed()


async def test_settings_that_change_while_they_are_read_are_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(tmp_path)
    scene.alter(keystore_location=scene.store("other", "elsewhere"))
    scene.alter(keystore_location=scene.store("new"))
    await scene.changed()
    assert "keeps its certificate" not in caplog.text


async def test_settings_that_are_of_no_use_change_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(tmp_path)
    scene.alter(keystore_location=tmp_path / "none.pem")
    async with asyncio.timeout(60):
        while "listener SSL keeps its certificate" not in caplog.text:
            await asyncio.sleep(0.001)
    assert scene.listener.context() is scene.first


async def test_stores_that_no_thread_could_read_once_are_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    scene = Scene(tmp_path)
    monkeypatch.setattr("seqgate.gateway.server.tls.RETRY_S", 0.0)
    with monkeypatch.context() as patched:
        patched.setattr(asyncio.get_running_loop(), "run_in_executor", no_thread)
        scene.store("own")
        assert scene.listener.context() is scene.first
    assert "listener SSL keeps its certificate: can't start new thread" in caplog.text
    await scene.changed()


async def test_a_trust_store_can_not_be_added(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    trusted = scene.authority.write(tmp_path / "ca.pem")
    with pytest.raises(StoreError, match="can't be added to a listener that was started without one"):
        await scene.listener.check(scene.proposed(truststore_location=trusted))


async def test_a_trust_store_is_read_although_nobody_shows_a_certificate(tmp_path: Path) -> None:
    trusted = Authority().write(tmp_path / "ca.pem")
    scene = Scene(tmp_path, f"ssl.truststore.location={trusted}")
    with pytest.raises(StoreError, match=r"none\.pem can't be read"):
        await scene.listener.check(scene.proposed(truststore_location=tmp_path / "none.pem"))


@pytest.mark.parametrize("allowed", [True, False])
async def test_another_subject_must_be_allowed(tmp_path: Path, allowed: bool) -> None:
    scene = Scene(tmp_path, f"{PREFIX}allow.dn.changes={allowed}")
    proposed = scene.proposed(keystore_location=scene.store("other", "elsewhere"))
    if allowed:
        await scene.listener.check(proposed)
    else:
        with pytest.raises(StoreError, match="another subject"):
            await scene.listener.check(proposed)


async def test_a_start_names_the_setting_that_was_altered(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    altered = scene.proposed(keystore_location=tmp_path / "none.pem")
    with pytest.raises(StoreError, match=f"{PREFIX}keystore.location was altered while the gateway ran"):
        TlsListener(asyncio.get_running_loop(), altered, "SSL")
