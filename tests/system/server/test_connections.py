"""Limits of one connection that protect the others: order, sizes, slow readers, malformed bytes, closing."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.batches import Batch, records
from tests.support.gateway_process import GatewayProcess
from tests.support.wire import Closed, Wire, encode

POLL_S = 0.01
DEADLINE_S = 120.0
FOREVER_MS = 30_000


def produce(topic: str, batch: Batch, *, acks: int = -1, index: int = 0) -> dict[str, Any]:
    entry = {"index": index, "records": batch.encode()}
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": 30_000,
        "topic_data": [{"name": topic, "partition_data": [entry]}],
    }


def fetch(topic: str, offset: int, *, max_wait_ms: int, min_bytes: int = 1) -> dict[str, Any]:
    entry = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    return {
        "replica_id": -1,
        "max_wait": max_wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": 1 << 24,
        "isolation_level": 0,
        "topics": [{"topic": topic, "partitions": [entry]}],
        "forgotten_topics_data": [],
    }


def create(gateway: GatewayProcess, topic: str) -> None:
    new = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    with Wire(gateway.bootstrap) as wire:
        answer = wire.call("create_topics", 5, {"topics": [new], "timeout": 30_000, "validate_only": False})
    assert answer.fields["topics"][0]["error_code"] == 0


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Poll the condition. The pause leaves the processor to the gateway."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(POLL_S)


def offset_of(answer: Any) -> int:
    row = answer.fields["responses"][0]["partition_responses"][0]
    assert row["error_code"] == 0, row
    return int(row["base_offset"])


class TestOrder:
    def test_pipelined_produce_requests_append_and_answer_in_order(
        self, shared_gateway: GatewayProcess
    ) -> None:
        create(shared_gateway, "order")
        with Wire(shared_gateway.bootstrap) as wire:
            sent = [
                wire.send("produce", 9, produce("order", Batch(records(1)).of(7, 0, number)))
                for number in range(200)
            ]
            offsets = [offset_of(wire.receive("produce", 9, correlation_id)) for correlation_id in sent]
        assert offsets == list(range(200))

    def test_a_request_behind_an_administrative_one_sees_its_effect(
        self, shared_gateway: GatewayProcess
    ) -> None:
        new = {
            "name": "behind",
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        with Wire(shared_gateway.bootstrap) as wire:
            first = wire.send(
                "create_topics", 5, {"topics": [new], "timeout": 30_000, "validate_only": False}
            )
            second = wire.send("produce", 9, produce("behind", Batch()))
            assert wire.receive("create_topics", 5, first).fields["topics"][0]["error_code"] == 0
            assert offset_of(wire.receive("produce", 9, second)) == 0

    def test_a_long_poll_holds_up_no_other_connection(self, shared_gateway: GatewayProcess) -> None:
        create(shared_gateway, "poll")
        with Wire(shared_gateway.bootstrap) as waiting, Wire(shared_gateway.bootstrap) as other:
            poll = waiting.send("fetch", 11, fetch("poll", 0, max_wait_ms=FOREVER_MS))
            assert offset_of(other.call("produce", 9, produce("poll", Batch()))) == 0
            answer = waiting.receive("fetch", 11, poll)
            assert answer.fields["responses"][0]["partitions"][0]["high_watermark"] == 1

    def test_requests_behind_a_long_poll_are_answered_after_it(self, shared_gateway: GatewayProcess) -> None:
        create(shared_gateway, "after")
        with Wire(shared_gateway.bootstrap) as wire:
            poll = wire.send("fetch", 11, fetch("after", 0, max_wait_ms=300))
            later = wire.send("produce", 9, produce("after", Batch()))
            assert (
                wire.receive("fetch", 11, poll).fields["responses"][0]["partitions"][0]["high_watermark"] == 0
            )
            assert offset_of(wire.receive("produce", 9, later)) == 0

    def test_a_fetch_waits_for_min_bytes(self, shared_gateway: GatewayProcess) -> None:
        create(shared_gateway, "bytes")
        batch = Batch(records(1, 400))
        with Wire(shared_gateway.bootstrap) as waiting, Wire(shared_gateway.bootstrap) as other:
            poll = waiting.send("fetch", 11, fetch("bytes", 0, max_wait_ms=FOREVER_MS, min_bytes=1000))
            for _ in range(3):
                other.call("produce", 9, produce("bytes", batch))
            row = waiting.receive("fetch", 11, poll).fields["responses"][0]["partitions"][0]
            assert len(row["records"]) >= 1000

    def test_min_bytes_written_before_the_fetch_and_flushed_after_it_end_its_wait(
        self, tmp_path: Path
    ) -> None:
        with GatewayProcess(tmp_path / "data") as gateway:
            create(gateway, "lag")
            batch = Batch(records(1, 400))
            with Wire(gateway.bootstrap) as writer, Wire(gateway.bootstrap) as reader:
                for offset in range(50):
                    sent = writer.send("produce", 9, produce("lag", batch))
                    poll = reader.send(
                        "fetch", 11, fetch("lag", offset, max_wait_ms=FOREVER_MS, min_bytes=400)
                    )
                    row = reader.receive("fetch", 11, poll).fields["responses"][0]["partitions"][0]
                    assert len(row["records"]) >= 400
                    writer.receive("produce", 9, sent)


class TestBadBytes:
    def test_a_request_that_can_not_be_answered_costs_no_other_its_answer(
        self, shared_gateway: GatewayProcess
    ) -> None:
        create(shared_gateway, "sound")
        bad = produce("sound", Batch())
        bad["topic_data"].append({**bad["topic_data"][0], "name": "?" * 32767})
        payload = encode("produce", 8, bad).replace(b"?" * 32767, b"\xff" * 32767)
        wires = [Wire(shared_gateway.bootstrap) for _ in range(4)]
        for number in range(10):
            with Wire(shared_gateway.bootstrap) as broken:
                broken.send_frame(payload)
                sent = [wire.send("produce", 9, produce("sound", Batch())) for wire in wires]
                for wire, correlation_id in zip(wires, sent, strict=True):
                    assert offset_of(wire.receive("produce", 9, correlation_id)) >= number
                with pytest.raises(Closed):
                    broken.receive_frame()
        for wire in wires:
            wire.close()

    def test_what_was_answered_before_bad_bytes_arrives(self, shared_gateway: GatewayProcess) -> None:
        payload = encode("api_versions", 0, {}, correlation_id=3)
        with Wire(shared_gateway.bootstrap) as wire:
            wire.send_bytes(struct.pack(">i", len(payload)) + payload + struct.pack(">i", -1))
            assert struct.unpack_from(">i", wire.receive_frame()) == (3,)
            with pytest.raises(Closed):
                wire.receive_frame()

    def test_an_unknown_api_closes_the_connection_and_leaves_a_line(
        self, shared_gateway: GatewayProcess
    ) -> None:
        with Wire(shared_gateway.bootstrap) as wire:
            wire.send_frame(struct.pack(">hhih", 999, 0, 1, -1))
            with pytest.raises(Closed):
                wire.receive_frame()
        assert "API key 999 version 0, which is not served" in shared_gateway.stderr_text()

    def test_an_api_versions_version_too_new_is_answered_in_v0(self, shared_gateway: GatewayProcess) -> None:
        with Wire(shared_gateway.bootstrap) as wire:
            wire.send_frame(struct.pack(">hhih", 18, 77, 5, -1) + b"\0\1\1\0")
            frame = wire.receive_frame()
            assert struct.unpack(">ihihhh", frame) == (5, 35, 1, 18, 0, 5)
            assert wire.call("api_versions", 0).fields["error_code"] == 0

    @pytest.mark.parametrize("size", [-1, 104857601, 2**31 - 1])
    def test_a_size_out_of_bounds_closes_the_connection(
        self, shared_gateway: GatewayProcess, size: int
    ) -> None:
        with Wire(shared_gateway.bootstrap) as wire:
            wire.send_bytes(struct.pack(">i", size))
            with pytest.raises(Closed):
                wire.receive_frame()

    def test_a_body_cut_short_closes_only_its_connection(self, shared_gateway: GatewayProcess) -> None:
        with Wire(shared_gateway.bootstrap) as broken, Wire(shared_gateway.bootstrap) as sound:
            broken.send_frame(encode("metadata", 9, {"topics": None})[:-3])
            with pytest.raises(Closed):
                broken.receive_frame()
            assert sound.call("api_versions", 0).fields["error_code"] == 0

    def test_acks_zero_answers_nothing_and_closes_on_an_error(self, shared_gateway: GatewayProcess) -> None:
        create(shared_gateway, "nil")
        with Wire(shared_gateway.bootstrap) as wire:
            wire.send("produce", 9, produce("nil", Batch(), acks=0))
            assert offset_of(wire.call("produce", 9, produce("nil", Batch()))) == 1
            wire.send("produce", 9, produce("no-such-topic", Batch(), acks=0))
            with pytest.raises(Closed):
                wire.receive_frame()

    def test_one_byte_at_a_time(self, shared_gateway: GatewayProcess) -> None:
        payload = encode("api_versions", 0, {}, correlation_id=3)
        with Wire(shared_gateway.bootstrap) as wire:
            for byte in struct.pack(">i", len(payload)) + payload:
                wire.send_bytes(bytes((byte,)))
            assert struct.unpack_from(">i", wire.receive_frame()) == (3,)


class TestLimits:
    def test_connections_in_all_and_per_address(self, tmp_path: Path) -> None:
        settings = {"max.connections.per.ip": "3"}
        with GatewayProcess(tmp_path / "data", settings=settings) as gateway:
            admitted = [Wire(gateway.bootstrap) for _ in range(3)]
            for wire in admitted:
                wire.call("api_versions", 0)
            with Wire(gateway.bootstrap) as refused, pytest.raises(Closed):
                refused.call("api_versions", 0)
            admitted.pop().close()

            def has_room() -> bool:
                try:
                    with Wire(gateway.bootstrap) as wire:
                        return bool(wire.call("api_versions", 0).fields["error_code"] == 0)
                except Closed:
                    return False

            eventually(has_room, "room after a connection went")
            for wire in admitted:
                wire.close()
            assert "max.connections.per.ip is 3" in gateway.stderr_text()

    def test_an_address_gets_a_limit_of_its_own_while_the_gateway_runs(self, tmp_path: Path) -> None:
        def limited(wire: Wire, limits: str | None) -> None:
            change = {
                "name": "max.connections.per.ip.overrides",
                "config_operation": 1 if limits is None else 0,
                "value": limits,
            }
            resource = {"resource_type": 4, "resource_name": "", "configs": [change]}
            answer = wire.call("incremental_alter_configs", 1, resources=[resource]).fields
            assert answer["responses"][0]["error_code"] == 0

        with GatewayProcess(tmp_path / "data") as gateway, Wire(gateway.bootstrap) as first:
            limited(first, "127.0.0.1:1,127.0.0.2:0")
            with Wire(gateway.bootstrap) as refused, pytest.raises(Closed):
                refused.call("api_versions", 0)
            assert first.call("api_versions", 0).fields["error_code"] == 0
            limited(first, None)
            with Wire(gateway.bootstrap) as second:
                assert second.call("api_versions", 0).fields["error_code"] == 0

    def test_idle_connections_are_closed_and_busy_ones_are_not(self, tmp_path: Path) -> None:
        settings = {"connections.max.idle.ms": "300"}
        with GatewayProcess(tmp_path / "data", settings=settings) as gateway:
            create(gateway, "t")
            with Wire(gateway.bootstrap) as idle, Wire(gateway.bootstrap) as busy:
                idle.call("api_versions", 0)
                poll = busy.send("fetch", 11, fetch("t", 0, max_wait_ms=1500))
                with pytest.raises(Closed):
                    idle.receive_frame()
                assert busy.receive("fetch", 11, poll).fields["error_code"] == 0

    def test_thousands_of_pipelined_requests_let_others_go_first(
        self, shared_gateway: GatewayProcess
    ) -> None:
        payload = encode("api_versions", 0, {}, correlation_id=1)
        frame = struct.pack(">i", len(payload)) + payload
        count = 30_000
        received = 0
        with (
            socket.create_connection(("127.0.0.1", shared_gateway.port), DEADLINE_S) as flood,
            Wire(shared_gateway.bootstrap) as other,
        ):
            flood.sendall(frame)
            answer_bytes = 4 + int.from_bytes(flood.recv(4, socket.MSG_WAITALL), "big")
            flood.recv(answer_bytes - 4, socket.MSG_WAITALL)
            flood.setblocking(False)
            unsent = memoryview(frame * count)
            others = 0
            while received < count * answer_bytes:
                with contextlib.suppress(BlockingIOError):
                    unsent = unsent[flood.send(unsent) :] if unsent else unsent
                other.call("api_versions", 0)
                others += received < count * answer_bytes // 2
                with contextlib.suppress(BlockingIOError):
                    received += len(flood.recv(1 << 20))
        assert others > 20, "the other connection was served all the time"

    def test_a_slow_reader_is_not_read_from_and_loses_nothing(self, tmp_path: Path) -> None:
        settings = {"seqgate.connection.response.backlog.bytes": "100000"}
        with GatewayProcess(tmp_path / "data", settings=settings) as gateway:
            create(gateway, "big")
            with Wire(gateway.bootstrap) as writer:
                for _ in range(8):
                    writer.call("produce", 9, produce("big", Batch(records(1, 900_000))))
            payload = encode("fetch", 11, fetch("big", 0, max_wait_ms=0), correlation_id=1)
            frame = struct.pack(">i", len(payload)) + payload
            count = 300
            with (
                socket.create_connection(("127.0.0.1", gateway.port)) as slow,
                Wire(gateway.bootstrap) as other,
            ):
                slow.sendall(frame * count)
                other.call("api_versions", 0)
                status = Path(f"/proc/{gateway.pid}/status").read_text()
                resident_kb = int(status.split("VmRSS:")[1].split()[0])
                assert resident_kb < 150_000, "answers of 270 MB must not pile up"
                slow.settimeout(DEADLINE_S)
                answers = 0
                received = bytearray()
                while answers < count:
                    received += slow.recv(1 << 20)
                    while len(received) >= 4 and len(received) >= 4 + (
                        size := int.from_bytes(received[:4], "big")
                    ):
                        del received[: 4 + size]
                        answers += 1
                assert not received

    def test_request_memory_pauses_reading_and_fails_nothing(self, tmp_path: Path) -> None:
        settings = {"queued.max.request.bytes": "1000000"}
        with GatewayProcess(tmp_path / "data", settings=settings) as gateway:
            create(gateway, "m")
            payload = encode("produce", 9, produce("m", Batch(records(1, 700_000))), correlation_id=1)
            frame = struct.pack(">i", len(payload)) + payload
            sockets = [socket.create_connection(("127.0.0.1", gateway.port), DEADLINE_S) for _ in range(8)]
            halves = [(sock, frame[:300_000], frame[300_000:]) for sock in sockets]
            for sock, first, _ in halves:
                sock.sendall(first)
            for sock, _, rest in halves:
                sock.sendall(rest)
            for sock in sockets:
                assert int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big") > 0
                sock.close()
            with Wire(gateway.bootstrap) as wire:
                assert offset_of(wire.call("produce", 9, produce("m", Batch()))) == 8


class TestStopping:
    def test_requests_in_flight_are_answered_and_new_connections_refused(self, tmp_path: Path) -> None:
        gateway = GatewayProcess(tmp_path / "data").start()
        create(gateway, "t")
        with Wire(gateway.bootstrap) as waiting, Wire(gateway.bootstrap) as producing:
            poll = waiting.send("fetch", 11, fetch("t", 0, max_wait_ms=FOREVER_MS, min_bytes=1 << 20))
            waiting_for = [
                producing.send("produce", 9, produce("t", Batch().of(1, 0, number))) for number in range(50)
            ]
            producing.receive("produce", 9, waiting_for[0])
            gateway.stop()
            assert waiting.receive("fetch", 11, poll).fields["error_code"] == 0
            answered = 1
            try:
                for correlation_id in waiting_for[1:]:
                    assert offset_of(producing.receive("produce", 9, correlation_id)) == answered
                    answered += 1
            except Closed:
                pass
        assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
        gateway.start()
        assert "clean stop: partitions 2, no record data read" in gateway.stderr_text()
        with Wire(gateway.bootstrap) as wire:
            offset = offset_of(wire.call("produce", 9, produce("t", Batch())))
        assert offset >= answered
        gateway.stop()
