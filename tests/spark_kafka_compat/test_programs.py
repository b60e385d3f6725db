"""What the programs say before Spark starts: their help, and one sentence for each thing that a run lacks."""

from __future__ import annotations

import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from seqgate.spark_kafka_compat import batch_reader
from seqgate.spark_kafka_compat.pipelines import audit, into_database, streaming
from seqgate.spark_kafka_compat.sequence_audit import AuditReport, ProducerVerdict, RecordVerdict
from seqgate.testing import Broker

NAMES = ("audit", "land", "into_database")
NEEDED = {
    "audit": ["t", "--bootstrap", "a:1"],
    "land": ["t", "--bootstrap", "a:1", "--path", "p"],
    "into_database": [
        *("t", "--bootstrap", "a:1", "--database", "sqlite:///x", "--table", "t"),
        *("--pipeline", "p", "--checkpoint", "c"),
    ],
}


@pytest.fixture
def no_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the import of PySpark fail."""
    version = metadata.version

    def without(name: str) -> str:
        if name.startswith("pyspark"):
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(metadata, "version", without)
    monkeypatch.setitem(sys.modules, "pyspark", None)


@pytest.mark.usefixtures("no_pyspark")
@pytest.mark.parametrize("name", NAMES)
def test_help_without_pyspark(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    program = import_module(f"seqgate.spark_kafka_compat.pipelines.{name}")
    with pytest.raises(SystemExit) as ended:
        program.main(["--help"])
    assert ended.value.code == 0
    assert "--bootstrap" in capsys.readouterr().out


@pytest.mark.usefixtures("no_pyspark")
@pytest.mark.parametrize("name", NAMES)
def test_a_run_without_pyspark_says_what_to_install(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    program = import_module(f"seqgate.spark_kafka_compat.pipelines.{name}")
    assert program.main(NEEDED[name]) == 2
    told = capsys.readouterr().err
    assert told == f'{name}: PySpark is not installed; install it with: pip install "seqgate[spark]"\n'


@pytest.mark.parametrize("module", ["spark_kafka_compat", "seqgate.spark_kafka_compat.pipelines"])
def test_the_package_lists_its_programs(module: str) -> None:
    told = subprocess.run([sys.executable, "-m", module], capture_output=True, text=True, check=True).stdout
    for name in NAMES:
        assert f"python -m seqgate.spark_kafka_compat.pipelines.{name} " in told


class SparkStarted(Exception):
    """Raised in place of the start of Spark: all checks before it have passed."""


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise `SparkStarted` where a program would start Spark."""

    def session(*_: object, **__: object) -> None:
        raise SparkStarted

    monkeypatch.setattr(streaming, "session", session)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("orders")
        yield running


def run(name: str, *arguments: str) -> int:
    program = import_module(f"seqgate.spark_kafka_compat.pipelines.{name}")
    status: int = program.main(list(arguments))
    return status


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("name", NAMES)
def test_an_endpoint_that_does_not_answer(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(name, *("127.0.0.1:1" if given == "a:1" else given for given in NEEDED[name])) == 2
    assert capsys.readouterr().err.startswith(f"{name}: Nothing answers at 127.0.0.1:1 ")


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("name", NAMES)
def test_a_topic_that_does_not_exist(name: str, broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    given = [broker.bootstrap if given == "a:1" else given for given in NEEDED[name][1:]]
    assert run(name, "order", *given) == 2
    assert capsys.readouterr().err == (
        f"{name}: There is no topic order at {broker.bootstrap} (did you mean orders?). Create it: "
        f"seqgate topics create order --bootstrap {broker.bootstrap}\n"
    )


@pytest.mark.usefixtures("no_spark")
def test_a_topic_that_is_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    with Broker(settings={"authorizer.class.name": authorizer}) as closed:
        closed.create_topic("orders")
        assert run("audit", "orders", "--bootstrap", closed.bootstrap) == 2
    assert "does not let this client read the topic orders" in capsys.readouterr().err


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(("operations", "may_read"), [(1 << 8, False), (1 << 3, True), (-(1 << 31), True)])
def test_the_right_to_read(
    operations: int,
    may_read: bool,
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic = SimpleNamespace(name="orders", error_code=0, topic_authorized_operations=operations)
    monkeypatch.setattr(batch_reader, "_metadata", lambda *_: SimpleNamespace(topics=[topic]))
    if may_read:
        with pytest.raises(SparkStarted):
            run("audit", "orders", "--bootstrap", broker.bootstrap)
    else:
        assert run("audit", "orders", "--bootstrap", broker.bootstrap) == 2
        assert "needs the right READ on the topic" in capsys.readouterr().err


@pytest.mark.usefixtures("no_spark")
def test_an_endpoint_that_takes_long_is_named_meanwhile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(streaming, "SILENCE_S", 0.0)
    monkeypatch.setattr("seqgate.spark_kafka_compat.wire.TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert run("audit", "orders", "--bootstrap", address) == 2
    first, last = capsys.readouterr().err.splitlines()
    assert first == f"audit: waiting for an answer of {address} ..."
    assert f"The connection to {address} broke (timed out)." in last
    assert "TLS or SASL" in last


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("orders", "--option", "failOndataLos=1"), "no option 'failOndataLos' (nearest: failOnDataLoss)"),
        (("orders", "--partition-by", "topic, day"), "Files can't be partitioned by day;"),
        ((), "Give exactly one of subscribe"),
    ],
)
def test_options_of_land(
    given: tuple[str, ...], told: str, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("land", *given, "--bootstrap", broker.bootstrap, "--path", "p") == 2
    assert told in capsys.readouterr().err


class TestTable:
    """The table of `into_database`, in a database whose path each test has for itself."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "shop.db"

    def run(self, broker: Broker, path: Path, *given: str) -> int:
        arguments = ("orders", "--bootstrap", broker.bootstrap, "--database", f"sqlite:{path}", "--table")
        return run("into_database", *arguments, "sales", "--pipeline", "p", *given)

    def create(self, path: Path, statement: str) -> None:
        database = sqlite3.connect(path)
        database.executescript(statement)
        database.close()

    @pytest.mark.usefixtures("no_spark")
    def test_the_statement_for_a_missing_one_works(
        self, broker: Broker, path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        given = ("--key", "id", "--select", "CAST(key AS STRING) AS id", "--select", "upper(topic) AS up")
        assert self.run(broker, path, *given, "--select", "offset") == 2
        told, _, statement = capsys.readouterr().err.partition("\n")
        assert told == (
            "into_database: There is no table sales in the database. Create it, with types that suit you:"
        )
        assert statement.splitlines() == [
            'CREATE TABLE "sales" (',
            '    "id" TEXT,',
            '    "up" TEXT,',
            '    "offset" BIGINT,',
            '    PRIMARY KEY ("id")',
            ");",
        ]
        self.create(path, statement)
        with pytest.raises(SparkStarted):
            self.run(broker, path, *given)

    @pytest.mark.usefixtures("no_spark")
    def test_the_statement_for_a_missing_column_works(
        self, broker: Broker, path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.create(path, "CREATE TABLE Sales (Topic TEXT, partition INT, offset INT)")
        assert self.run(broker, path) == 2
        told, _, statement = capsys.readouterr().err.partition("\n")
        assert "lacks timestamp, value: it has Topic, partition, offset." in told
        self.create(path, statement)
        with pytest.raises(SparkStarted):
            self.run(broker, path)

    @pytest.mark.usefixtures("no_spark")
    def test_a_key_that_is_none(self, broker: Broker, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.create(path, "CREATE TABLE sales (id TEXT)")
        assert self.run(broker, path, "--key", "id", "--select", "topic AS id") == 2
        assert "ON CONFLICT" in capsys.readouterr().err

    def test_names_that_only_spark_knows(self) -> None:
        assert into_database.column_types(["upper(topic)"]) is None
        assert into_database.column_types(["*"]) is None
        assert into_database.column_types(["CAST(value AS DECIMAL(10, 2)) AS `price`"]) == {
            "price": "DECIMAL(10, 2)"
        }


def test_off_a_terminal_a_row_of_the_audit_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = "a-topic-whose-name-is-longer-than-eighty-columns-" + "x" * 80
    row = ProducerVerdict(topic, 0, 1009, 0, 2, 3, 0, 2, 0, 0, 0, ())
    monkeypatch.setattr(audit, "begin", lambda *_: None)
    monkeypatch.setattr(audit, "check_endpoint", lambda *_: None)
    monkeypatch.setattr(audit, "audit_producers", lambda *_, **__: AuditReport((row,), ()))
    assert run("audit", topic, "--bootstrap", "a:1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(topic in line and "1009" in line for line in lines)
    assert lines[-1] == f"audited 3 records of 1 producer in {topic}: no gaps, duplicates or reorderings"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Audit records without Spark; return what the reader and the audit are asked for."""
    asked: dict[str, object] = {}

    def verdicts(_: object, **given: object) -> list[RecordVerdict]:
        asked.update(given)
        return [RecordVerdict("t", 0, name, 1, 0, 0, 0, 0, 0) for name in ("loader[eu]", "app[/1]")]

    monkeypatch.setattr(audit, "begin", lambda *_: None)
    monkeypatch.setattr(audit, "check_endpoint", lambda *_: None)
    monkeypatch.setattr(audit, "source", lambda *_, options: asked.update(options))
    monkeypatch.setattr(audit, "audit_records", verdicts)
    return asked


def test_the_audit_of_records_reads_committed_ones(asked: dict[str, object]) -> None:
    assert run("audit", "t", "--bootstrap", "a:1", "--records") == 0
    assert asked == {"includeHeaders": True, "kafka.isolation.level": "read_committed", "compacted": False}
    assert run("audit", "t", "--bootstrap", "a:1", "--records", "--compacted", "--scope", "topic") == 0
    assert (asked["compacted"], asked["scope"]) == (True, "topic")


@pytest.mark.usefixtures("asked")
def test_the_audit_of_records_prints_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("audit", "t", "--bootstrap", "a:1", "--records") == 0
    printed = capsys.readouterr().out
    assert "loader[eu] " in printed
    assert "app[/1] " in printed


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--scope", "topic", "--producer", "key"), "--producer, --scope needs --records"),
        (("--records", "--require-idempotence"), "--require-idempotence is about batch headers"),
    ],
)
def test_options_of_the_audit_that_do_not_go_together(
    given: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run("audit", "t", "--bootstrap", "a:1", *given)
    assert ended.value.code == audit.FAILED
    assert told in capsys.readouterr().err
