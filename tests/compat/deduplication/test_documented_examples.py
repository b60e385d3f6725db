"""The examples of `docs/deduplication.md` tell where a name was, and where to begin when it was nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.compat.topics import fresh_topic
from tests.support.gateway_process import GatewayProcess
from tests.support.named_batches import DEDUPLICATED, named
from tests.support.wire import Wire

PAGE = Path(__file__).resolve().parents[3] / "docs" / "deduplication.md"
EXAMPLES = re.findall(
    r"^([a-z-]+):\n\n```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
ASKING = [(library, code) for library, code in EXAMPLES if "seqgate-name:" in code]
LAST_LINE = 41


@pytest.fixture(scope="module")
def topic(shared_gateway: GatewayProcess) -> str:
    """One in which the example's name has come to LAST_LINE."""
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
