"""The topic commands in the docs pages run unchanged with Kafka's own tools."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.compat.topics import fresh_topic
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_tools import run_tool
from tests.support.wire import Wire

DOCS = Path(__file__).resolve().parents[3] / "docs"
COMMAND = re.compile(r"^ *((?:kafka-topics|kafka-configs)(?:\.sh)? (?:.*\\\n)*.*)", re.MULTILINE)
TOPIC_RESOURCE = 2


def commands(page: str) -> list[list[str]]:
    """Return the words of each command on a page that names a topic."""
    found = COMMAND.findall((DOCS / page).read_text(encoding="utf-8"))
    split = [shlex.split(command.replace("\\\n", " ")) for command in found]
    return [words for words in split if "--topic" in words]


def configs(bootstrap: str, topic: str) -> dict[str, str]:
    """Return the configs that are set on the topic."""
    resources = [{"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configuration_keys": None}]
    with Wire(bootstrap) as wire:
        answer = wire.call("describe_configs", 4, resources=resources, include_synonyms=False).fields
    (result,) = answer["results"]
    return {row["name"]: row["value"] for row in result["configs"]}


@pytest.mark.parametrize(
    ("page", "exists", "expected"),
    [
        ("deduplication.md", False, {"message.deduplication.enable": "true"}),
        ("delayed-records.md", False, {"delivery.delay.header": "due"}),
        ("compaction.md", False, {"cleanup.policy": "compact"}),
        (
            "backlog.md",
            True,
            {"backlog.quota.bytes": "1073741824", "backlog.quota.policy": "producer_exception"},
        ),
    ],
)
def test_they_do_what_the_page_says(
    shared_gateway: GatewayProcess, page: str, exists: bool, expected: dict[str, str]
) -> None:
    found = commands(page)
    assert found
    topic = fresh_topic(shared_gateway.bootstrap, "documented") if exists else f"documented-{page}"
    for words in found:
        words[words.index("--topic") + 1] = topic
        words[words.index("--bootstrap-server") + 1] = shared_gateway.bootstrap
        run_tool(words[0].removesuffix(".sh"), *words[1:]).expect_success()
    told = configs(shared_gateway.bootstrap, topic)
    assert {name: told[name] for name in expected} == expected
