"""The examples of `docs/deduplication.md` print a name's last sequence id, and the line to begin with when
the name has no sequence id.
"""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition

from tests.compat.topics import fresh_topic
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_tools import java_command
from tests.support.markdown import blocks
from tests.support.named_batches import DEDUPLICATED, named
from tests.support.wire import Wire

PAGE = Path(__file__).resolve().parents[3] / "docs" / "deduplication.md"
ALL_EXAMPLES = re.findall(
    r"^([^\n]*)\n\n```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
EXAMPLES = [(told[:-1], code) for told, code in ALL_EXAMPLES if re.fullmatch(r"[a-z-]+:", told)]
PATIENCE_S = 60.0
ASKING = [(library, code) for library, code in EXAMPLES if "seqgate-name:" in code]
LAST_LINE = 41


@pytest.fixture(scope="module")
def topic(shared_gateway: GatewayProcess) -> str:
    """Return a topic in which the example's name has sent everything up to LAST_LINE."""
    name = fresh_topic(shared_gateway.bootstrap, "ledger", configs=DEDUPLICATED)
    batch = named("ledger-reader", *range(LAST_LINE + 1)).encode()
    data = [{"name": name, "partition_data": [{"index": 0, "records": batch}]}]
    with Wire(shared_gateway.bootstrap) as wire:
        wire.call("produce", 9, acks=-1, timeout=10_000, topic_data=data)
    return name


def _next_line(code: str, bootstrap: str, topic: str) -> object:
    names: dict[str, object] = {}
    own = code.replace("127.0.0.1:9092", bootstrap).replace('"ledger"', f'"{topic}"')
    exec(compile(own, PAGE.name, "exec"), names)
    return names["next_line"]


def test_there_is_one_for_each_python_library() -> None:
    assert [library for library, _ in ASKING] == ["kafka-python", "confluent-kafka", "aiokafka"]


@pytest.mark.parametrize(("library", "code"), ASKING)
def test_it_goes_on_where_the_name_was(
    shared_gateway: GatewayProcess, topic: str, library: str, code: str
) -> None:
    del library
    assert _next_line(code, shared_gateway.bootstrap, topic) == LAST_LINE + 1
    unknown = code.replace("ledger-reader", "nobody")
    assert _next_line(unknown, shared_gateway.bootstrap, topic) == 0


JAVA = """\
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

public class DocumentedExample {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        String bytes = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
        settings.put("key.deserializer", bytes);
        settings.put("value.deserializer", bytes);
        %s
    }
}
"""
"""A program around the Java example, which is a part of one."""


def test_the_java_client_goes_on_where_the_name_was(
    shared_gateway: GatewayProcess, topic: str, tmp_path: Path
) -> None:
    (example,) = (block.text for block in blocks(PAGE) if block.language == "java")
    told = "long nextLine = last == null ? 0 : last.offset() + 1;\n"
    assert told in example
    own = example.replace(told, f"{told}System.out.println(nextLine);\n").replace('"ledger"', "arguments[1]")
    source = tmp_path / "DocumentedExample.java"
    source.write_text(JAVA % own)
    done = subprocess.run(
        [*java_command(str(source)), shared_gateway.bootstrap, topic],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stdout.strip() == str(LAST_LINE + 1), done.stderr


def test_the_writer_may_run_again(
    shared_gateway: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = [code for _, code in ALL_EXAMPLES if "lines.txt" in code]
    name = fresh_topic(shared_gateway.bootstrap, "lines", partitions=4, configs=DEDUPLICATED)
    lines = {b"line %d\n" % number for number in range(500)}
    (tmp_path / "lines.txt").write_bytes(b"".join(sorted(lines)))
    monkeypatch.chdir(tmp_path)
    own = code.replace("localhost:9092", shared_gateway.bootstrap).replace('"lines"', f'"{name}"')
    for _ in range(2):
        exec(compile(own, PAGE.name, "exec"), {})
    consumer = KafkaConsumer(bootstrap_servers=shared_gateway.bootstrap, auto_offset_reset="earliest")
    partitions = [TopicPartition(name, index) for index in range(4)]
    consumer.assign(partitions)
    ends = consumer.end_offsets(partitions)
    values = []
    deadline = time.monotonic() + PATIENCE_S
    while any(consumer.position(each) < ends[each] for each in partitions):
        assert time.monotonic() < deadline
        values += [record.value for records in consumer.poll(timeout_ms=1_000).values() for record in records]
    consumer.close()
    assert sorted(values) == sorted(lines)
