"""The help of every command, usage errors and exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from seqgate.gateway.cli import app
from tests.support.gateway_process import REPOSITORY, GatewayProcess, free_port
from tests.system.commands.conftest import seqgate, seqgate_process


def commands(of: typer.Typer, *prefix: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command, such as `groups reset`."""
    for command in of.registered_commands:
        assert command.callback is not None
        yield (*prefix, command.name or command.callback.__name__)
    for group in of.registered_groups:
        assert group.typer_instance is not None
        yield from commands(group.typer_instance, *prefix, str(group.name))


@pytest.mark.parametrize("words", list(commands(app)), ids=" ".join)
def test_help_is_plain(words: tuple[str, ...]) -> None:
    shown = seqgate(*words, "-h").stdout
    assert shown == seqgate(*words, "--help").stdout
    assert shown.startswith(f"Usage: seqgate {' '.join(words)} [OPTIONS]")
    assert "<" not in shown, "the help must show a metavar, not a Python type"
    assert "{" not in shown
    assert "[default: (" not in shown


def test_summaries_are_whole_and_as_wide_as_the_terminal() -> None:
    shown = seqgate_process("-h").stdout
    assert "..." not in shown.replace("[ARGS]...", "")
    assert max(map(len, shown.splitlines())) > 80


def test_version() -> None:
    assert seqgate("--version").stdout.startswith("seqgate ")


def test_completion_of_subcommands() -> None:
    words = {"COMP_WORDS": "seqgate topics de", "COMP_CWORD": "2", "_SEQGATE_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [sys.executable, "-m", "seqgate"],
        cwd=REPOSITORY,
        env={**os.environ, **words},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == ["describe", "delete"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("serve", "--listen", "127.0.0.1"), "--listen 127.0.0.1: a port is missing, such as 127.0.0.1:9092"),
        (
            ("serve", "--listen", "127.0.0.1:99999"),
            "--listen 127.0.0.1:99999: port 99999 is not between 0 and 65535",
        ),
        (
            ("serve", "--listen", "::1:9092"),
            "--listen ::1:9092: an IPv6 address stands in brackets, such as [::1]:9092",
        ),
        (
            ("serve", "--listen", "31093"),
            "--listen 31093: the address is missing; did you mean 127.0.0.1:31093?",
        ),
        (("topics", "list", "--bootstrap", "9094"), "did you mean 127.0.0.1:9094?"),
        (("topics", "list", "--bootstrap", "host"), "--bootstrap: 'host': a port is missing"),
        (
            ("topics", "list", "--bootstrap", "h:1", "--data-dir", "d"),
            "either with --bootstrap or with --data-dir",
        ),
        (
            ("topics", "create", "t", "--set", "retention.ms"),
            "--set: 'retention.ms' must have the form NAME=VALUE",
        ),
        (("topics", "create", "t", "--config", "a=1"), "does not exist; a configuration is set by --set a=1"),
        (("configs", "get", "topics", "t"), "'KIND': 'topics' is not one of"),
        (("configs", "get", "topics", "t"), "; the nearest name is topic"),
        (("topics", "alter", "t"), "nothing to alter"),
        (
            ("produce", "t", "--key", "k", "--key-separator", ":"),
            "--key and --key-separator exclude each other",
        ),
        (("produce", "t", "--keep-partitions"), "--keep-partitions needs --from-json"),
        (("produce", "t", "--from-json", "--null", "x"), "--null is for lines of text"),
        (("consume", "t", "--from", "1", "--since", "1h"), "--from and --since exclude each other"),
        (("consume", "t", "--from", "start"), "--from: 'start' is not a place to read from"),
        (("consume", "t", "--since", "yesterday"), "--since: 'yesterday' is not a valid time"),
        (("consume", "t", "--show", "valeu"), "--show: 'valeu' is not one of"),
        (("dead-letters", "drop", "t", "--key", "k", "--all"), "letters can't be dropped by key"),
        (("dead-letters", "drop", "t"), "give one of --all, --replayed, --until and --before-offset"),
        (("dead-letters", "drop", "t", "--all", "--replayed"), "give one of --all, --replayed"),
        (("dead-letters", "drop", "t", "--before-offset", "3"), "--before-offset needs --partition"),
        (("dead-letters", "list", "t", "--until", "yesterday"), "--until: 'yesterday' is not a valid time"),
    ],
)
def test_usage_errors(arguments: tuple[str, ...], complaint: str) -> None:
    refused = seqgate(*arguments, code=2)
    assert complaint in refused.stderr
    assert refused.stdout == ""


@pytest.mark.parametrize(
    ("setting", "advice"),
    [
        ("broker.id=1", "the name of this setting is node.id"),
        ("zookeeper.connect=a:1", "a gateway needs no ZooKeeper"),
        ("sasl.kerberos.service.name=kafka", "Kerberos (GSSAPI) is not supported"),
    ],
)
def test_settings_of_kafka_that_have_no_counterpart(setting: str, advice: str) -> None:
    refused = seqgate("serve", "--set", setting, code=1).stderr
    assert advice in refused
    assert "nearest valid name" not in refused


def test_nothing_answers(tmp_path: Path) -> None:
    absent = seqgate("topics", "list", "--bootstrap", "127.0.0.1:1", code=1).stderr
    assert absent.startswith("seqgate: nothing answers at 127.0.0.1:1 (")
    missing = tmp_path / "missing"
    assert f"no gateway is running on {missing}, which does not exist;" in (
        seqgate("status", "--data-dir", missing, code=1).stderr
    )
    assert f"no gateway is running on {tmp_path}; start it" in (
        seqgate("topics", "list", "--data-dir", tmp_path, code=1).stderr
    )


def test_a_relative_data_directory_is_printed_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"no gateway is running on {tmp_path / 'data'}, " in seqgate("status", code=1).stderr


def test_the_gateway_of_the_data_directory_is_the_default(gateway: GatewayProcess) -> None:
    made = seqgate("topics", "create", "orders", "--data-dir", gateway.data_dir)
    assert made.stdout == "Topic orders: created (1 partition).\n"
    seqgate("produce", "orders", "--data-dir", gateway.data_dir, stdin=b"hello\n")
    assert seqgate("consume", "orders", "--data-dir", gateway.data_dir).stdout == "hello\n"


def test_the_ready_line_tells_bound_and_advertised_addresses(tmp_path: Path) -> None:
    settings = {"advertised.listeners": "PLAINTEXT://gateway.example:9999"}
    with GatewayProcess(tmp_path / "data", settings=settings) as gateway:
        assert (
            f"ready on {gateway.bootstrap}, tells clients gateway.example:9999 (data in" in gateway.ready_line
        )
        shown = seqgate("status", "--data-dir", gateway.data_dir).stdout
    assert ["listening", "on", gateway.bootstrap] in [line.split() for line in shown.splitlines()]
    assert ["tells", "clients", "gateway.example:9999"] in [line.split() for line in shown.splitlines()]


def test_an_advertised_address_that_cannot_be_reached(tmp_path: Path) -> None:
    settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{free_port()}"}
    with GatewayProcess(tmp_path / "data", settings=settings) as gateway:
        told = seqgate("topics", "list", "--bootstrap", gateway.bootstrap, code=1).stderr
    assert told == (
        f"seqgate: {gateway.bootstrap} answers, but the address that it advertises to clients can't be "
        "reached: connection refused; check advertised.listeners of the cluster\n"
    )


def test_following_ends_with_ctrl_c(gateway: GatewayProcess) -> None:
    there = ("--bootstrap", gateway.bootstrap)
    seqgate("topics", "create", "orders", *there)
    follow = [sys.executable, "-m", "seqgate", "consume", "orders", "--follow", *there]
    with subprocess.Popen(
        # a test run in the background of a shell ignores the signal, and without `env` the command would, too
        ["env", "--default-signal=INT", *follow],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for value in ("one", "two"):
            seqgate("produce", "orders", *there, stdin=f"{value}\n".encode())
            assert process.stdout.readline() == f"{value}\n"
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (0, "")


def test_a_reader_that_has_enough(gateway: GatewayProcess) -> None:
    there = ("--bootstrap", gateway.bootstrap)
    seqgate("produce", "orders", "--create", *there, stdin=b"x\n" * 50_000)
    consume = [sys.executable, "-m", "seqgate", "consume", "orders", *there]
    with subprocess.Popen(
        consume, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "x\n"
        process.stdout.close()
        told = process.stderr.read()
        process.wait(60)
    assert (process.returncode, told) == (1, "")


def test_serving_imports_no_kafka_client_and_no_tables() -> None:
    loaded = "import sys, seqgate.gateway.cli, seqgate.gateway.gateway; print(sorted({'kafka', 'rich'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", loaded], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
