"""Several listeners, IPv6, advertised addresses, and the warning about a listener on all addresses."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.gateway_process import REPOSITORY, GatewayProcess
from tests.support.wire import Wire


def brokers_at(bootstrap: str) -> list[tuple[str, int]]:
    with Wire(bootstrap) as wire:
        answer = wire.call("metadata", 5, {"topics": [], "allow_auto_topic_creation": False})
    return [(broker["host"], broker["port"]) for broker in answer.fields["brokers"]]


def test_each_listener_tells_its_own_address(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "seqgate", "serve", "--data-dir", str(tmp_path / "data")]
    command += ["--listen", "127.0.0.1:0", "--listen", "[::1]:0"]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        found = re.match(r"seqgate ready on 127\.0\.0\.1:(\d+), \[::1\]:(\d+) ", line)
        assert found, line
        four, six = int(found[1]), int(found[2])
        assert brokers_at(f"127.0.0.1:{four}") == [("127.0.0.1", four)]
        assert brokers_at(f"::1:{six}") == [("::1", six)]
        process.terminate()
        assert process.wait(30) == 0
        assert "without authentication" not in process.stderr.read()


def test_clients_are_told_the_advertised_address(tmp_path: Path) -> None:
    settings = {"advertised.listeners": "PLAINTEXT://kafka.example.org:19092"}
    with GatewayProcess(tmp_path / "data", settings=settings) as gateway:
        assert brokers_at(gateway.bootstrap) == [("kafka.example.org", 19092)]


def test_a_wide_listener_is_warned_of(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "seqgate", "serve", "--data-dir", str(tmp_path / "data")]
    command += ["--listen", "0.0.0.0:0", "--set", "seqgate.allow.insecure.listeners=true"]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("seqgate ready on ")
        process.terminate()
        assert process.wait(30) == 0
        assert "without authentication" in process.stderr.read()


def test_a_wide_listener_does_not_start_by_itself(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "seqgate", "serve", "--data-dir", str(tmp_path / "data")]
    done = subprocess.run(
        [*command, "--set", "listeners=PLAINTEXT://:9092"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "every interface (port 9092)" in done.stderr
    assert "seqgate.allow.insecure.listeners=true" in done.stderr
    assert not (tmp_path / "data").exists()


def test_a_port_in_use_stops_the_start_with_a_sentence(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "data") as gateway:
        command = [sys.executable, "-m", "seqgate", "serve", "--data-dir", str(tmp_path / "other")]
        command += ["--listen", gateway.bootstrap]
        second = subprocess.run(
            command, cwd=REPOSITORY, capture_output=True, text=True, timeout=30, check=False
        )
    assert second.returncode == 1
    assert f"can't listen on {gateway.bootstrap}: " in second.stderr
