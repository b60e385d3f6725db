"""Waits until an endpoint has applied everything that was changed before.

Kafka answers a change of its metadata when its controller has stored it. The broker applies changes
afterwards, one set after another: the metadata cache first, then logs, configs, quotas and access control
entries, the coordinators of groups last. So the cache may show a topic that a coordinator does not know yet.
"""

from __future__ import annotations

import itertools

from tests.compat.differential.peer import Peer
from tests.support.group_configs import GROUP_RESOURCE
from tests.support.wire import Plain

MARK = "consumer.session.timeout.ms"
SMALLEST, LARGEST = 45_000, 60_000
_marks = itertools.cycle(range(SMALLEST, LARGEST))


def await_applied(peer: Peer) -> None:
    """Wait until all parts of the endpoint have applied the changes that it has answered.

    Two more changes show that: the cache has the second one only after all parts have the set of the first
    one.
    """
    for _ in range(2):
        _change_and_await(peer, str(next(_marks)))


def _change_and_await(peer: Peer, value: str) -> None:
    resource: Plain = {"resource_type": GROUP_RESOURCE, "resource_name": peer.name("applied")}
    change = {"name": MARK, "config_operation": 0, "value": value}
    asked = [{**resource, "configs": [change]}]
    answer = peer.wire.call("incremental_alter_configs", 1, resources=asked, validate_only=False).fields
    assert answer["responses"][0]["error_code"] == 0, answer

    def shows(answer: Plain) -> bool:
        return any(config["value"] == value for config in answer["results"][0]["configs"])

    peer.until("describe_configs", 4, shows, {"resources": [{**resource, "configuration_keys": [MARK]}]})
