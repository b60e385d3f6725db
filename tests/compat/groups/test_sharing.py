"""Two members of each client library share a topic: one is killed, one leaves, and both return."""

from __future__ import annotations

import pytest

from tests.compat.groups.hand_over import finish_hand_over, kill_and_take_over, read_together
from tests.compat.groups.members import CLIENTS, Members, await_that, once_each


@pytest.mark.parametrize("client", CLIENTS)
def test_the_others_take_over_from_a_member_that_is_killed(members: Members, client: str) -> None:
    first, second = members.start(client, "first"), members.start(client, "second")
    kill_and_take_over(members, first, second)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_clean_hand_over_and_a_later_return_deliver_nothing_twice(members: Members, client: str) -> None:
    first, second = members.start(client, "first"), members.start(client, "second")
    members.await_shared(first, second)
    members.produce(10)
    await_that(lambda: first.records, "the first has a part of them")
    first.begin_leaving()
    members.deliver(10)
    finish_hand_over(members, first, second)

    members.produce(10)
    third = members.start(client, "third")
    members.await_all_delivered()
    assert len(third.records) == 40
    third.leave()
    assert once_each(members.sent, members.delivered)


def test_all_clients_in_one_group(members: Members) -> None:
    """kafka-python, aiokafka, librdkafka and the JVM in one group: whichever leads assigns partitions to all."""
    joined = [members.start(client, client) for client in CLIENTS]
    read_together(members, *joined)
    for member in joined[:-1]:
        member.leave()
    members.await_shared(joined[-1])
    members.deliver(10)
    assert once_each(members.sent, members.delivered)
