"""What the metrics listener answers, and what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seqgate.gateway import http_server as http
from seqgate.gateway.admin.operations import OPERATIONS
from seqgate.gateway.admin.pids import IN_USE, USED_UP
from seqgate.gateway.backends.backend import StartFailed
from seqgate.gateway.config import load_config
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.metrics.listener import VIEWS
from seqgate.gateway.metrics.table import text_of
from tests.gateway.metrics.scene import Scene, running
from tests.support.metrics_text import OPENMETRICS, values_of


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with running(tmp_path) as scene:
        yield scene


PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
"""The header that Prometheus 3 sends."""
GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_pages(scene: Scene) -> None:
    assert (await scene.get("/healthz")).text == "ok\n"
    assert (await scene.get("/readyz")).text == "ready\n"
    assert "/metrics" in (await scene.get("/")).text
    missing = await scene.get("/favicon.ico")
    assert (missing.status, missing.text.split("\n")[0]) == (404, "there is no such page here")
    assert (await scene.get("/metrics/")).status == 404
    assert (await scene.get("/healthz?x=1")).status == 200


async def test_every_interface_of_ipv6_is_every_interface(tmp_path: Path) -> None:
    async with running(tmp_path, host="[::]") as scene:
        assert (await scene.get("/healthz")).text == "ok\n"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_other_methods_are_refused(scene: Scene, method: str) -> None:
    reply = await scene.get("/metrics", method=method)
    assert (reply.status, reply.text) == (405, "only GET and HEAD are answered here\n")


async def test_head_has_the_length_and_no_body(scene: Scene) -> None:
    async with scene.connected() as client:
        client.send(b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n" + GET)
        head = await client.reply(has_body=False)
        assert (head.status, head.headers["content-length"]) == (200, "3")
        assert (await client.reply()).text == "ok\n"


async def test_one_connection_asks_again_and_ahead(scene: Scene) -> None:
    async with scene.connected() as client:
        client.send(GET * 5)
        for _ in range(5):
            assert (await client.reply()).status == 200
        client.send(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert (await client.reply()).status == 200
        assert await client.ended() == b"", "HTTP/1.0 closes after the answer"


async def test_a_body_is_read_and_ignored(scene: Scene) -> None:
    async with scene.connected() as client:
        client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + b"a" * 100_000 + GET)
        assert (await client.reply()).status == 405
        assert (await client.reply()).status == 200


@pytest.mark.parametrize(
    "request_",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET //[ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: [\r\n\r\n",
        b"GET /view/status?" + b"a=1&" * 60 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
async def test_malformed_requests_get_400(scene: Scene, request_: bytes) -> None:
    async with scene.connected() as client:
        client.send(request_)
        assert (await client.reply()).status == 400
    assert (await scene.get("/healthz")).status == 200


async def test_a_huge_head_gets_431(scene: Scene) -> None:
    async with scene.connected() as client:
        client.send(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * (http.MAX_HEAD_BYTES + 1))
        assert (await client.reply()).status == 431


async def test_a_slow_client_is_disconnected(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_TIMEOUT_S", 0.01)
    async with scene.connected() as client:
        client.send(b"GET / HTTP/1.1\r\nHost:")
        assert await client.ended() == b""
    async with scene.connected() as client:
        assert await client.ended() == b""


async def test_connections_beyond_the_limit_are_closed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_CLIENTS", 2)
    async with scene.connected() as one, scene.connected() as two:
        for client in (one, two):
            client.send(GET)
            assert (await client.reply()).status == 200
        async with scene.connected() as third:
            assert await third.ended() == b""
        one.send(GET)
        assert (await one.reply()).status == 200
    async with asyncio.timeout(60):
        while not await _is_served(scene):  # until the gateway has noticed that both have left
            pass


async def _is_served(scene: Scene) -> bool:
    async with scene.connected() as client:
        client.send(GET + b"GET / HTTP/1.0\r\n\r\n")
        return b"ok" in await client.ended()


async def test_an_error_in_the_gateway_is_500(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(*_: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr("seqgate.gateway.metrics.listener.text_of", failing)
    assert (await scene.get("/metrics")).status == 500
    monkeypatch.setattr("seqgate.gateway.metrics.listener.text_of", text_of)
    assert (await scene.get("/metrics")).status == 200


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
        (OPENMETRICS, "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        (PROMETHEUS, "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        ("application/openmetrics-text;version=abc", ""),  # prometheus_client decides
        (";;=,=", "text/plain; version=0.0.4; charset=utf-8"),
    ],
)
async def test_the_client_chooses_the_format(scene: Scene, accept: str, content_type: str) -> None:
    reply = await scene.get("/metrics", accept=accept)
    assert reply.status == 200
    assert reply.headers["content-type"].startswith(content_type)
    assert values_of(reply.text).of("seqgate_ready") == 1
    assert reply.body.count(b"# EOF") == ("openmetrics" in reply.headers["content-type"])


async def test_a_stop_while_scrapes_run(tmp_path: Path) -> None:
    async with running(tmp_path) as scene, scene.connected() as one, scene.connected() as two:
        for client in (one, two):
            client.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.sleep(0)
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


async def test_a_client_that_leaves_during_a_scrape_blocks_no_other(scene: Scene) -> None:
    for _ in range(5):
        async with scene.connected() as client:
            client.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await scene.get("/metrics")).status == 200


async def test_a_port_in_use_is_a_sentence(tmp_path: Path) -> None:
    async with running(tmp_path / "one") as scene:
        second = Gateway(
            load_config(
                overrides=[
                    f"log.dirs={tmp_path / 'two'}",
                    "listeners=PLAINTEXT://127.0.0.1:0",
                    f"seqgate.metrics.listener=127.0.0.1:{scene.port}",
                ]
            )
        )
        with pytest.raises(
            StartFailed, match=rf"can't listen for metrics on 127.0.0.1:{scene.port}: .*in use"
        ):
            await second.start()
    before = asyncio.all_tasks()
    assert before == {asyncio.current_task()}, "the refused start leaves no task behind"


class TestViews:
    @pytest.mark.parametrize("name", sorted(VIEWS))
    async def test_each_view_answers(self, scene: Scene, name: str) -> None:
        fields = {
            "pids.owner": "?producer_id=1",
            "groups.describe": "?group=g",
            "transactions.describe": "?transactional_id=t",
            "backlog": "?topic=t",
        }
        reply = await scene.get(f"/view/{name}{fields.get(name, '')}")
        assert reply.headers["content-type"] == "application/json"
        if reply.status == 409:
            assert " " in reply.json["error"], "a sentence says what is not there"
        else:
            assert reply.status == 200, reply.text

    @pytest.mark.parametrize(
        "name", sorted({operation.request.operation_name() for operation in OPERATIONS} - VIEWS)
    )
    async def test_other_operations_are_no_views(self, scene: Scene, name: str) -> None:
        reply = await scene.get(f"/view/{name}")
        assert (reply.status, reply.json["error"].split(";")[0]) == (404, f"there is no view '{name}'")

    def test_no_view_changes_anything(self) -> None:
        operations = {operation.request.operation_name(): operation for operation in OPERATIONS}
        assert operations.keys() >= VIEWS
        never = operations["status"].changes
        assert [name for name in sorted(VIEWS) if operations[name].changes is not never] == []

    async def test_a_view_that_would_change_something_is_refused(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("seqgate.gateway.metrics.listener.changes_something", lambda _: True)
        reply = await scene.get("/view/status")
        assert (reply.status, reply.json["error"]) == (409, "status changes something, and a view does not")

    @pytest.mark.parametrize(
        ("target", "said"),
        [
            ("status?x=1", "unknown field `x`"),
            ("verdicts?limit=many", "Expected `int`"),
            ("groups.describe", "missing required field"),
            ("status?operation=log-lines", "leave the field operation out"),
        ],
    )
    async def test_wrong_fields(self, scene: Scene, target: str, said: str) -> None:
        reply = await scene.get(f"/view/{target}")
        assert reply.status == 400
        assert said in reply.json["error"]

    async def test_blocks_of_this_run_are_used_up_and_not_given_up(self, tmp_path: Path) -> None:
        async with (
            running(tmp_path / "ids", "seqgate.producer.id.block.size=2") as scene,
            scene.wire() as wire,
        ):
            for _ in range(7):
                await wire.call(
                    "init_producer_id", 4, transactional_id=None, producer_id=-1, producer_epoch=-1
                )
            states = [row["state"] for row in (await scene.get("/view/pids.list")).json["blocks"]]
            assert states[:3] == [USED_UP] * 3
            assert IN_USE in states

    async def test_a_limit_out_of_range(self, scene: Scene) -> None:
        reply = await scene.get("/view/verdicts?limit=20000")
        assert (reply.status, reply.json["error"]) == (409, "limit must be between 1 and 10000, not 20000")

    async def test_fields_are_passed_on(self, scene: Scene) -> None:
        async with scene.wire() as wire:
            await wire.create("a")
        assert (await scene.get("/view/status")).json["topics"] == 1
        assert (await scene.get("/view/groups.list?states=empty&states=stable&limit=5")).status == 200

    @pytest.mark.parametrize(
        ("host", "status"),
        [
            ("127.0.0.1:1", 200),
            ("localhost", 200),
            ("[::1]:9", 200),
            ("evil.example:80", 403),
            ("10.0.0.1", 403),
        ],
    )
    async def test_a_page_of_another_host_name_sees_nothing(
        self, scene: Scene, host: str, status: int
    ) -> None:
        """A browser on this machine may reach the listener under any name that resolves to 127.0.0.1."""
        assert (await scene.get("/view/status", host=host)).status == status
        assert (await scene.get("/metrics", host=host)).status == 200

    async def test_beyond_this_machine_only_if_it_is_allowed(self, tmp_path: Path) -> None:
        async with running(tmp_path / "one", host="0.0.0.0") as scene:
            reply = await scene.get("/view/status")
            assert reply.status == 403
            assert "seqgate.metrics.views.everywhere=true" in reply.json["error"]
            assert (await scene.get("/readyz")).status == 200
        allowed = "seqgate.metrics.views.everywhere=true"
        async with running(tmp_path / "two", allowed, host="0.0.0.0") as scene:
            assert (await scene.get("/view/status", host="evil.example")).status == 200


async def test_without_the_setting_nothing_is_timed_and_a_question_gets_what_is_counted(
    tmp_path: Path,
) -> None:
    gateway = Gateway(load_config(overrides=[f"log.dirs={tmp_path}", "listeners=PLAINTEXT://127.0.0.1:0"]))
    await gateway.start()
    try:
        texts = await asyncio.gather(gateway._metrics_text(), gateway._metrics_text())
        assert gateway.services.partitions.append_times is None
        assert gateway.server.dispatcher._times is None
        for text in texts:
            found = values_of(text)
            assert found.of("seqgate_connections") == 0
            assert not any("request_duration" in name or "loop_delay" in name for name, _ in found)
    finally:
        await gateway.stop()
