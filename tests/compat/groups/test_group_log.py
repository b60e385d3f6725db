"""The lines that the gateway logs when real clients join, die and leave."""

from __future__ import annotations

import re

import pytest

from tests.compat.groups.members import CONFLUENT, Members, await_that
from tests.support.gateway_process import GatewayProcess


@pytest.mark.parametrize("client", ["kafka-python", CONFLUENT])
def test_rebalances_are_logged(group_gateway: GatewayProcess, members: Members, client: str) -> None:
    group = members.group
    first, second = members.start(client, "first"), members.start(client, "second")
    members.await_shared(first, second)
    second.kill()
    members.await_shared(first)
    first.leave()
    await_that(lambda: f"group {group} is empty" in group_gateway.stderr_text(), "the group is empty")
    text = group_gateway.stderr_text()
    for line in (
        rf"group {group}: member \S+ \(client '\S+' at 127.0.0.1\) joined",
        rf"group {group} rebalances: was Empty in generation 0; member \S+ joined",
        rf"group {group} is stable: generation \d+, members: 2",
        rf"group {group}: member \S+ \(.*\) was removed: its session timed out",
        rf"group {group} is stable: generation \d+, members: 1",
        rf"group {group}: member \S+ \(.*\) left",
    ):
        assert re.search(line, text), line
