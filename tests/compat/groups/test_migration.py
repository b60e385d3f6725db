"""Groups with members of both protocols: clients are replaced one by one, in both directions, while records
flow.

No record may be lost. Some are read twice, because librdkafka does not repeat a commit that arrives with an
outdated member epoch.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.groups.conftest import SETTINGS
from tests.compat.groups.members import CLIENTS, CONFLUENT, CONSOLE_CONSUMER, GroupMember, Members, await_that
from tests.support.gateway_process import GatewayProcess
from tests.tiers import in_tiers

CONSUMER_SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "10000",
    "group.consumer.session.timeout.ms": "10000",
}
COOPERATIVE = [(CONFLUENT, "cooperative-sticky"), (CONSOLE_CONSUMER, "CooperativeStickyAssignor")]
KINDS = [*((client, None) for client in CLIENTS), *COOPERATIVE]
"""(client, assignor) of classic members."""
REPLACED = [(kind, new_client) for kind in KINDS for new_client in (CONFLUENT, CONSOLE_CONSUMER)]
OF_EACH_CHANGE = [
    (("kafka-python", None), CONFLUENT),
    (COOPERATIVE[0], CONFLUENT),
    (COOPERATIVE[1], CONSOLE_CONSUMER),
]
"""What `make test-all` replaces: an eager client, and both cooperative ones."""


@pytest.fixture(scope="module")
def group_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    directory = tmp_path_factory.mktemp("migration") / "data"
    with GatewayProcess(directory, settings=SETTINGS | CONSUMER_SETTINGS) as process:
        yield process


def start(members: Members, kind: tuple[str, str | None], name: str) -> GroupMember:
    client, assignor = kind
    return members.start(client, name, **({} if assignor is None else {"assignor": assignor}))


def await_reading(members: Members, *reading: GroupMember) -> None:
    """Send records until exactly these members have got new ones, and every record was delivered."""
    others = [member for member in members.started if member not in reading]

    def are_reading() -> bool:
        before = {member: len(member.records) for member in members.started}
        members.deliver(2)
        return all(len(member.records) > before[member] for member in reading) and all(
            len(member.records) == before[member] for member in others
        )

    await_that(are_reading, f"{[member.name for member in reading]} share the records\n{members.account()}")


@pytest.mark.parametrize(
    ("kind", "new_client"),
    in_tiers(REPLACED, nightly=[case for case in REPLACED if case not in OF_EACH_CHANGE]),
)
def test_clients_are_replaced_one_by_one_and_back(
    members: Members, kind: tuple[str, str | None], new_client: str
) -> None:
    old = [start(members, kind, "first"), start(members, kind, "second")]
    await_reading(members, *old)
    new = [members.start(new_client, "third", protocol="consumer")]
    await_reading(members, *old, *new)
    old.pop(0).leave()
    await_reading(members, *old, *new)
    new.append(members.start(new_client, "fourth", protocol="consumer"))
    await_reading(members, *old, *new)
    old.pop(0).leave()
    await_reading(members, *new)
    again = start(members, kind, "fifth")
    await_reading(members, *new, again)
    for member in new:
        member.leave()
    await_reading(members, again)


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.tier("nightly")] if kind != KINDS[0] else []) for kind in KINDS],
)
def test_the_last_consumer_is_killed(members: Members, kind: tuple[str, str | None]) -> None:
    old = start(members, kind, "old")
    new = members.start(CONFLUENT, "new", protocol="consumer")
    await_reading(members, old, new)
    new.kill()
    await_reading(members, old)
    later = start(members, kind, "later")
    await_reading(members, old, later)


def test_every_client_in_one_group(members: Members) -> None:
    joined = [
        members.start(CONFLUENT, "consumer", protocol="consumer"),
        start(members, COOPERATIVE[0], "rdkafka"),
    ]
    joined += [
        start(members, COOPERATIVE[1], "java"),
        members.start(CONSOLE_CONSUMER, "new", protocol="consumer"),
    ]
    await_reading(members, *joined)
    joined.pop(0).leave()
    await_reading(members, *joined)
