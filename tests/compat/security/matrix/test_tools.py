"""Apache Kafka's tools with --command-config over SASL_SSL, as an administrator and as a user without rights."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from seqgate.gateway.security.acls.access import Operation, ResourceType
from tests.compat.security.matrix.endpoint import Account, Endpoint, Way, running_endpoint
from tests.compat.security.matrix.jvm import write_properties
from tests.compat.security.test_delegation_token_tools import CREATED
from tests.support.kafka_tools import ToolRun, run_tool

EVERYTHING = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.USER)


@dataclass(frozen=True)
class Tools:
    """The tools, run by one account."""

    account: Account

    def run(self, name: str, *arguments: str, stdin: str | None = None) -> ToolRun:
        config = write_properties(self.account)
        where = ("--bootstrap-server", self.account.bootstrap, "--command-config", config)
        return run_tool(name, *where, *arguments, stdin=stdin)

    def __call__(self, name: str, *arguments: str, stdin: str | None = None) -> str:
        """Run a tool that succeeds; return what it printed."""
        return self.run(name, *arguments, stdin=stdin).expect_success().stdout


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with running_endpoint(tmp_path_factory.mktemp("tools")) as endpoint:
        endpoint.create_topic("closed")
        yield endpoint


@pytest.fixture(scope="module")
def administrator(endpoint: Endpoint) -> Tools:
    account = endpoint.account(Way.SCRAM_SHA_512)
    account.allow(ResourceType.CLUSTER, "kafka-cluster", Operation.ALL)
    for kind in EVERYTHING:
        account.allow(kind, "*", Operation.ALL)
    return Tools(account)


@pytest.fixture(scope="module")
def nobody(endpoint: Endpoint) -> Tools:
    return Tools(endpoint.account(Way.SCRAM_SHA_256))


def test_records_and_groups(administrator: Tools) -> None:
    administrator("kafka-topics", "--create", "--topic", "orders", "--partitions", "2")
    assert "PartitionCount: 2" in administrator("kafka-topics", "--describe", "--topic", "orders")
    administrator("kafka-console-producer", "--topic", "orders", stdin="one\ntwo\n")
    reading = ("--topic", "orders", "--group", "readers", "--from-beginning", "--max-messages", "2")
    assert sorted(administrator("kafka-console-consumer", *reading).split()) == ["one", "two"]
    described = administrator("kafka-consumer-groups", "--describe", "--group", "readers")
    offsets = re.findall(r"^readers\s+orders\s+\d\s+(\d+|-)\s", described, re.MULTILINE)
    assert sum(int(offset) for offset in offsets if offset != "-") == 2
    administrator("kafka-consumer-groups", "--delete", "--group", "readers")
    assert "readers" not in administrator("kafka-consumer-groups", "--list")


def test_users_quotas_and_entries(administrator: Tools, endpoint: Endpoint) -> None:
    user = ("--entity-type", "users", "--entity-name", "added")
    for added in ("SCRAM-SHA-512=[iterations=4096,password=secret]", "producer_byte_rate=1048576"):
        administrator("kafka-configs", "--alter", *user, "--add-config", added)
    described = administrator("kafka-configs", "--describe", *user)
    assert "producer_byte_rate=1048576.0" in described
    assert "SCRAM-SHA-512=iterations=4096" in described
    entry = ("--topic", "closed", "--allow-principal", "User:added", "--operation", "Describe")
    administrator("kafka-acls", "--add", *entry)
    assert "(principal=User:added" in administrator("kafka-acls", "--list", "--topic", "closed")
    as_added = Tools(Account(endpoint, Way.SCRAM_SHA_512, "User:added", "added", "secret"))
    assert as_added("kafka-topics", "--list").split() == ["closed"]
    administrator("kafka-acls", "--remove", "--force", *entry)
    assert as_added("kafka-topics", "--list").split() == []


def test_delegation_tokens(administrator: Tools, endpoint: Endpoint) -> None:
    created = CREATED.search(
        administrator("kafka-delegation-tokens", "--create", "--max-life-time-period", "-1")
    )
    assert created is not None
    assert created["owner"] == administrator.account.principal
    lent = Account(endpoint, Way.DELEGATION_TOKEN, created["owner"], created["id"], created["hmac"])
    assert "closed" in Tools(lent)("kafka-topics", "--list").split()
    administrator(
        "kafka-delegation-tokens", "--expire", "--expiry-time-period", "-1", "--hmac", created["hmac"]
    )
    refused = Tools(lent).run("kafka-topics", "--list")
    assert refused.exit_code != 0
    assert "Authentication failed" in refused.stdout + refused.stderr


USER_ADDED = ("--alter", "--entity-type", "users", "--entity-name", "u", "--add-config")


@pytest.mark.parametrize(
    ("tool", "arguments", "error"),
    [
        ("kafka-topics", ("--create", "--topic", "new"), "Authorization failed"),
        ("kafka-topics", ("--delete", "--topic", "closed"), "does not exist"),
        ("kafka-acls", ("--list",), "ClusterAuthorizationException"),
        ("kafka-configs", (*USER_ADDED, "SCRAM-SHA-512=[password=p]"), "Cluster authorization failed"),
        ("kafka-configs", (*USER_ADDED, "producer_byte_rate=1"), "Cluster authorization failed"),
        ("kafka-consumer-groups", ("--describe", "--group", "g"), "GroupAuthorizationException"),
        ("kafka-console-producer", ("--topic", "closed"), "Not authorized to access topics: [closed]"),
        (
            "kafka-console-consumer",
            ("--topic", "closed", "--group", "g", "--timeout-ms", "30000"),
            "Not authorized to access topics: [closed]",
        ),
    ],
)  # fmt: skip
def test_a_tool_without_rights_names_what_it_may_not_do(
    nobody: Tools, tool: str, arguments: tuple[str, ...], error: str
) -> None:
    done = nobody.run(tool, *arguments, stdin="value\n")
    assert error in done.stdout + done.stderr, done


def test_lists_leave_out_what_a_user_may_not_see(nobody: Tools) -> None:
    assert nobody("kafka-topics", "--list").split() == []
    assert nobody("kafka-consumer-groups", "--list").split() == []
