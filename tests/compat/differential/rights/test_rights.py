"""Each row and each scene sends the same bytes to Seqgate and to Apache Kafka, both with an authorizer."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.compat.differential.peer import Transcript
from tests.compat.differential.rights import acl_apis, logins, requests
from tests.compat.differential.rights.endpoints import Endpoint
from tests.compat.differential.rights.known_differences import KNOWN_DIFFERENCES
from tests.compat.differential.rights.scenes import AS_SUPER_USER, BEFORE_LOGIN
from tests.compat.differential.rights.stage import Right, steps
from tests.compat.differential.rights.table import CLUSTER_ACTION, READ_GROUP, READ_TOPIC, ROWS, WRITE_TOPIC
from tests.compat.differential.verdict import expect_agreement

assert requests.__all__
assert acl_apis.__doc__
assert logins.__doc__

TOKEN = uuid.uuid4().hex[:8]


def _expect_alike(
    name: str, run: Callable[[Endpoint], Transcript], kafka: Endpoint, gateway: Endpoint
) -> None:
    with ThreadPoolExecutor(1) as beside:
        expected = beside.submit(run, kafka)
        seen = run(gateway)
    expect_agreement(name, expected.result(), seen, KNOWN_DIFFERENCES)


@pytest.mark.parametrize("name", ROWS)
def test_rights_agree(name: str, guarded_kafka: Endpoint, guarded_gateway: Endpoint) -> None:
    _expect_alike(name, lambda endpoint: ROWS[name].run(endpoint, TOKEN), guarded_kafka, guarded_gateway)


@pytest.mark.parametrize("name", BEFORE_LOGIN.found)
def test_logins_agree(name: str, guarded_kafka: Endpoint, guarded_gateway: Endpoint) -> None:
    scene = BEFORE_LOGIN.found[name]
    _expect_alike(name, lambda endpoint: scene.run(endpoint.logins, TOKEN), guarded_kafka, guarded_gateway)


@pytest.mark.parametrize("name", AS_SUPER_USER.found)
def test_apis_of_security_agree(name: str, guarded_kafka: Endpoint, guarded_gateway: Endpoint) -> None:
    scene = AS_SUPER_USER.found[name]
    _expect_alike(name, lambda endpoint: scene.run(endpoint.admin, TOKEN), guarded_kafka, guarded_gateway)


def test_every_known_difference_speaks_for_a_scenario() -> None:
    names = [*ROWS, *BEFORE_LOGIN.found, *AS_SUPER_USER.found]
    idle = [entry for entry in KNOWN_DIFFERENCES if not any(entry.speaks_for(name) for name in names)]
    assert not idle, idle


def test_steps_cover_none_some_denied_and_all() -> None:
    def labels(*rights: Right) -> list[str]:
        return [step.label for step in steps(rights)]

    assert labels(CLUSTER_ACTION) == ["lacks all", "denied CLUSTER_ACTION CLUSTER", "has all"]
    assert labels(WRITE_TOPIC) == ["lacks all", "may describe", "denied WRITE TOPIC", "has all"]
    assert labels(READ_GROUP, READ_TOPIC) == [
        "lacks all",
        "has only READ GROUP",
        "has only READ TOPIC",
        "may describe",
        "denied READ GROUP",
        "denied READ TOPIC",
        "has all",
    ]
