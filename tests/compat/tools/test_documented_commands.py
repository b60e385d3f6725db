"""The topic commands in the docs pages run unchanged, those of Kafka's tools and those of `seqgate`."""

from __future__ import annotations

import re
import shlex
import uuid
from pathlib import Path

import pytest

from tests.compat.topics import fresh_topic
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_tools import run_tool
from tests.support.wire import Wire
from tests.system.commands.conftest import seqgate

DOCS = Path(__file__).resolve().parents[3] / "docs"
COMMAND = re.compile(r"^ *((?:kafka-topics|kafka-configs)(?:\.sh)? (?:.*\\\n)*.*)", re.MULTILINE)
OWN_COMMAND = re.compile(
    r"^ *seqgate ((?:topics create|topics alter|configs set topic|configs unset topic) (?:.*\\\n)*[^#\n]*)",
    re.MULTILINE,
)
PAGES = (*sorted(DOCS.rglob("*.md")), DOCS.parent / "README.md")
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


def own_commands(page: Path) -> list[list[str]]:
    """Return the words of each command of `seqgate` on a page that changes a topic."""
    return [
        shlex.split(command.replace("\\\n", " "))
        for command in OWN_COMMAND.findall(page.read_text(encoding="utf-8"))
        if "[OPTIONS]" not in command
    ]


def test_the_page_of_commands_has_some() -> None:
    assert len(own_commands(DOCS / "commands.md")) >= 5


@pytest.mark.parametrize(
    "page", [page for page in PAGES if own_commands(page)], ids=lambda page: str(page.name)
)
def test_commands_of_seqgate_run(shared_gateway: GatewayProcess, page: Path) -> None:
    topics: dict[str, str] = {}
    for words in own_commands(page):
        place = 2 if words[0] == "topics" else 3
        name = words[place]
        if name not in topics:
            topics[name] = f"{name}-{uuid.uuid4().hex[:8]}"
            if words[1] != "create":
                seqgate("topics", "create", topics[name], "--bootstrap", shared_gateway.bootstrap)
        words[place] = topics[name]
        if words[1] == "create":
            words.append("--if-not-exists")
        if "--command-config" in words:
            place = words.index("--command-config")
            del words[place : place + 2]
        if "--bootstrap" in words:
            words[words.index("--bootstrap") + 1] = shared_gateway.bootstrap
        else:
            words += ["--bootstrap", shared_gateway.bootstrap]
        seqgate(*words)
