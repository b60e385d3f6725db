"""The test control over HTTP and by `seqgate faults`: its description, and what it refuses."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from docs.pages import pages
from seqgate.gateway.testing import BrokerProcess, Kind
from seqgate.gateway.testing.control.routes import ROUTES
from seqgate.gateway.testing.control.serving import address_complaint
from tests.gateway.testing.exchanges import batch, initialise, produce_on
from tests.support.wire import Closed, Wire

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as running:
        yield running


def ask(
    broker: BrokerProcess, method: str, path: str, body: Any = None, headers: Mapping[str, str] = JSON
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(broker.control, timeout=30)
    content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    connection.request(method, path, content, dict(headers))
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if answer.headers["content-type"] == "application/json" else text


def test_the_description_names_every_route(broker: BrokerProcess) -> None:
    status, found = ask(broker, "GET", "/openapi.json")
    assert status == 200
    named = {(method.upper(), path) for path, methods in found["paths"].items() for method in methods}
    assert named == {(route.method, route.path) for route in ROUTES}
    assert json.loads(pages()["test-control.json"]) == found
    assert "partition_offline" in found["components"]["schemas"]["Order"]["properties"]["fault"]["enum"]


def test_the_broker_tells_its_address(broker: BrokerProcess) -> None:
    status, found = ask(broker, "GET", "/broker")
    assert (status, found["bootstrap"], found["running"]) == (200, broker.bootstrap, True)


def test_a_reset_leaves_an_empty_broker_at_the_same_address(broker: BrokerProcess) -> None:
    broker.create_topic("t")
    broker.clock.advance(days=1)
    for order in ({"fault": "close", "api": "Metadata", "times": 9}, {"fault": "disk_full"}):
        assert ask(broker, "POST", "/faults", order)[0] == 200
    status, found = ask(broker, "POST", "/reset")
    assert (status, found["bootstrap"], found["running"]) == (200, broker.bootstrap, True)
    assert [ask(broker, "GET", path)[1] for path in ("/topics", "/faults", "/groups")] == [[], [], {}]
    assert ask(broker, "POST", "/clock", {})[1] == {"ahead_seconds": 0}
    broker.create_topic("t")
    with Wire(broker.bootstrap) as wire:
        assert produce_on(wire, batch(b"x"))["base_offset"] == 0


@pytest.mark.parametrize(("after", "kept"), [("stop", 1), ("kill", 1), ("power_cut", 0)])
def test_a_restart_keeps_what_its_end_leaves(broker: BrokerProcess, after: str, kept: int) -> None:
    broker.reset()
    broker.create_topic("t")
    with Wire(broker.bootstrap) as wire:
        produce_on(wire, batch(b"x"))
        status, found = ask(broker, "POST", "/restart", {"after": after})
        assert (status, found["bootstrap"], found["running"]) == (200, broker.bootstrap, True)
        with pytest.raises((Closed, ConnectionError)):
            produce_on(wire, batch(b"y"))
    assert len(broker.records("t")) == kept


def test_a_stopped_broker_takes_faults_and_starts_again(broker: BrokerProcess) -> None:
    broker.reset()
    broker.create_topic("t")
    assert ask(broker, "POST", "/stop")[1]["running"] is False
    with pytest.raises(OSError, match="refused"), Wire(broker.bootstrap):
        pass
    assert ask(broker, "GET", "/topics") == (409, {"error": "the broker does not run: call start() first"})
    with pytest.raises(RuntimeError, match="does not run"):
        broker.topics()
    with broker.faults.error("NOT_ENOUGH_REPLICAS", api="Produce") as fault, broker.faults.disk_full():
        pass
    with broker.faults.error("NOT_ENOUGH_REPLICAS", api="Produce") as fault:
        assert ask(broker, "POST", "/start")[1]["running"] is True
        assert ask(broker, "POST", "/start")[0] == 409
        with Wire(broker.bootstrap) as wire:
            assert [produce_on(wire, batch(b"x"))["error_code"] for _ in range(2)] == [19, 0]
        assert fault.struck == 1


def test_a_script_has_only_the_kinds_that_were_ordered(broker: BrokerProcess) -> None:
    broker.reset()
    broker.create_topic("t")
    with broker.faults.script(1, rate=1, api="Produce", times=3, kinds=[Kind.ERROR]) as script:
        with Wire(broker.bootstrap) as wire:
            codes = [produce_on(wire, batch(b"x"))["error_code"] for _ in range(4)]
        assert (script.struck, codes[3]) == (3, 0)
        assert 0 not in codes[:3]
    wrong = {"fault": "script", "seed": 1, "kinds": ["melt"]}
    assert (
        "'melt' is no kind of fault; the kinds are drop_answer, "
        in ask(broker, "POST", "/faults", wrong)[1]["error"]
    )


def test_requests_at_the_same_time_take_turns(broker: BrokerProcess) -> None:
    broker.reset()
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, broker, *words) for words in 4 * [("POST", "/reset"), ("GET", "/topics")]]
        assert [each.result() for each in asked] == 4 * [(200, ask(broker, "GET", "/broker")[1]), (200, [])]


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("GET", "/nothing", None, {}, 404),
        ("PUT", "/faults", None, {}, 405),
        ("GET", "/faults/99", None, {}, 404),
        ("DELETE", "/faults/x", None, {}, 404),
        ("POST", "/faults", b"{", JSON, 400),
        ("POST", "/faults", {}, JSON, 400),
        ("POST", "/faults", {"fault": "close", "melts": 1}, JSON, 400),
        ("POST", "/faults", {"fault": "error"}, JSON, 400),
        ("POST", "/faults", {"fault": "script"}, JSON, 400),
        ("POST", "/faults", {"fault": "partition_offline"}, JSON, 400),
        ("POST", "/faults", {"fault": "disk_full", "topic": "t"}, JSON, 400),
        ("POST", "/clock", {"hours": -1}, JSON, 400),
        ("POST", "/restart", {"after": "melting"}, JSON, 400),
        ("POST", "/clock", {"hours": 1e300}, JSON, 400),
        ("POST", "/topics/none/exactly-once", {"values": [1]}, JSON, 400),
        ("POST", "/topics/none/exactly-once", {"values": [{"base64": "*"}]}, JSON, 400),
        ("POST", "/faults", {"fault": "close"}, {"content-type": "text/plain"}, 415),
        ("POST", "/kill", None, {"host": "evil.example:80"}, 403),
        ("POST", "/kill", None, {"origin": "http://127.0.0.1"}, 403),
    ],
)
def test_what_is_wrong_is_refused_with_a_sentence(
    broker: BrokerProcess, method: str, path: str, body: Any, headers: Mapping[str, str], status: int
) -> None:
    found, answer = ask(broker, method, path, body, headers)
    assert found == status, answer
    assert isinstance(answer, bytes) or answer["error"]


@pytest.mark.parametrize(
    ("address", "is_allowed"),
    [
        ("127.0.0.1:0", True),
        ("localhost:9000", True),
        ("[::1]:9000", True),
        ("0.0.0.0:9000", False),
        (":9000", False),
        ("example.org:9000", False),
        ("SSL://127.0.0.1:9000", False),
        ("127.0.0.1", False),
    ],
)
def test_only_the_loopback_interface_is_listened_on(address: str, is_allowed: bool) -> None:
    assert (address_complaint(address) is None) is is_allowed


def seqgate(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "seqgate", *words]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)


def test_other_addresses_are_refused() -> None:
    for words, sentence in (
        (["--test-control", "0.0.0.0:0"], "the loopback interface only"),
        (["--exit-with", "1"], "--exit-with is for tests: it needs --test-control"),
    ):
        done = seqgate("serve", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert sentence in done.stderr


def test_the_command_orders_lists_and_ends(broker: BrokerProcess) -> None:
    control = ["--control", broker.control]
    done = seqgate("faults", "order", "close", "--api", "Produce", "--times", "3", *control, "--json")
    (row,) = json.loads(done.stdout)
    assert (row["text"], row["struck"], row["ended"]) == ("close (api Produce)", 0, False)
    done = seqgate("faults", "list", *control)
    assert "close (api Produce)" in done.stdout
    done = seqgate("faults", "end", str(row["id"]), *control, "--json")
    assert json.loads(done.stdout)[0]["ended"]
    assert seqgate("faults", "end", *control).returncode == 0
    done = seqgate("faults", "order", "melt", *control)
    assert (done.returncode, done.stderr.startswith("seqgate: 'melt' is no fault")) == (1, True)
    done = seqgate("faults", "list", "--control", "127.0.0.1:1")
    assert (done.returncode, done.stderr) == (
        1,
        "seqgate: no test control answers on 127.0.0.1:1: Connection refused\n",
    )


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (b"", "ended the connection without an answer"),
        (b"what?\r\n", "is no test control, it does not speak HTTP"),
        (b'HTTP/1.0 404 Not Found\r\n\r\n{"error_code":404}', 'is no test control: {"error_code":404}'),
    ],
)
def test_another_server_is_no_test_control(answer: bytes, complaint: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:

        def answer_once() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)

        answered = pool.submit(answer_once)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        done = seqgate("faults", "list", "--control", address)
        answered.result(60)
    assert (done.returncode, done.stderr.startswith(f"seqgate: {address} {complaint}")) == (1, True), (
        done.stderr
    )
    assert "is no HOST:PORT" in seqgate("faults", "list", "--control", "127.0.0.1:http").stderr


def test_the_commands_do_to_the_broker_what_requests_do(broker: BrokerProcess) -> None:
    control = ["--control", broker.control]
    with ThreadPoolExecutor(4) as pool:
        done = seqgate("faults", "reset", *control)
        assert done.stdout == f"the broker runs (for clients: {broker.bootstrap})\n"
        broker.create_topic("t")
        with Wire(broker.bootstrap) as wire:
            producer_id, epoch = initialise(wire)
            produce_on(wire, batch(b"x", producer_id=producer_id, producer_epoch=epoch, base_sequence=0))
        runs = [
            pool.submit(seqgate, "faults", *words, *control, stdin="x\n")
            for words in (
                ["advance", "--hours", "1"],
                ["exactly-once", "t"],
                ["expire-producer", str(producer_id)],
                ["fence", "a/%2F"],
            )
        ]
        assert [(run.result().returncode, run.result().stdout) for run in runs] == [
            (0, "the clock is 3600 s ahead\n"),
            (0, "topic t holds each of 1 values exactly once\n"),
            (0, f"producer {producer_id} was known in 1 partition\n"),
            (1, ""),
        ]
        assert "a/%2F" in runs[-1].result().stderr
        broker.create_topic("lines")
        with Wire(broker.bootstrap) as wire:
            produce_on(wire, batch("a\u2028b".encode()), topic="lines")
        done = seqgate("faults", "exactly-once", "lines", *control, stdin="a\u2028b\n")
        assert done.returncode == 0, done.stderr
        done = seqgate("faults", "restart", "--after", "power-cut", *control)
        assert (done.returncode, broker.records("t")) == (0, [])
        done = seqgate("faults", "exactly-once", "t", *control, stdin="x\n")
        assert (done.returncode, done.stderr) == (1, "seqgate: topic t: 1 lost: 'x'\n")
        assert seqgate("faults", "stop", *control, "--json").returncode == 0
        done = seqgate("faults", "exactly-once", "t", *control)
        assert (done.returncode, done.stderr) == (1, "seqgate: the broker does not run: call start() first\n")
        assert json.loads(seqgate("faults", "start", *control, "--json").stdout)["running"]
