"""Clients over their quotas: the throttle times in their answers, the other fields of these answers, and that
their connections are not read meanwhile.

Each conversation measures users of its own. Times are compared as ranges: both endpoints compute them from
the same rates, but at other moments.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

from tests.compat.differential.logins.visit import Table, Visit
from tests.compat.differential.peer import Peer, Topic, fetch_request, produce_request
from tests.compat.differential.settling import await_applied
from tests.support.batches import Batch, Record
from tests.support.wire import Answer, Plain

TABLE = Table()
WINDOWS_S = 10
"""The time (s) of all windows: an idle client may send at once as much as its quota allows in this time."""
RATE = 10_000.0
UNDER = 5_000
OVER = 110_000
"""Bytes that are a second above what `RATE` allows at once."""
FAR_OVER = 130_000
"""Bytes that are three seconds above what `RATE` allows at once."""


def _user(visit: Visit) -> str:
    """Return a user that only this conversation measures."""
    return f"measured-{list(TABLE.found).index(visit.conversation)}"


def _limit(visit: Visit, user: str, key: str, value: float) -> None:
    """Set a quota of a user, and wait until the endpoint describes it."""
    entity = [{"entity_type": "user", "entity_name": user}]
    entry = {"entity": entity, "ops": [{"key": key, "value": value, "remove": False}]}
    visit.admin.wire.call("alter_client_quotas", 1, entries=[entry], validate_only=False)
    component = {"entity_type": "user", "match_type": 0, "match": user}
    visit.admin.until(
        "describe_client_quotas",
        1,
        lambda answer: (
            bool(answer["entries"]) and key in {each["key"] for each in answer["entries"][0]["values"]}
        ),
        {"components": [component], "strict": True},
    )
    await_applied(visit.admin)


def _measured(client: Peer, api: str, version: int, request: Plain, *, least_ms: int = 200) -> Plain:
    """Record an answer, and whether it throttles the client; return the answer."""
    received: Plain = {}

    def converse() -> Answer:
        answer = client.wire.call(api, version, request)
        received.update(answer.fields)
        return Answer(
            {**_without_time(answer.fields), "throttled": _throttled(answer.fields, least_ms)},
            answer.trailing,
        )

    client.exchange(f"{api} v{version}", None, converse)
    return received


def _without_time(fields: Plain) -> Plain:
    return {name: value for name, value in fields.items() if name != "throttle_time"}


def _throttled(fields: Plain, least_ms: int) -> Any:
    told_ms = fields.get("throttle_time")
    return told_ms if not told_ms else told_ms >= least_ms or told_ms


def _is_muted(client: Peer, throttle_ms: int) -> None:
    """Record whether the next request is answered only after (nearly) the whole throttle time."""
    begun_s = time.monotonic()
    answer = client.wire.call("metadata", 12, topics=[])
    waited_ms = (time.monotonic() - begun_s) * 1000
    client.note(
        "the next request",
        error=answer.fields.get("error_code", 0),
        waited=waited_ms >= 0.8 * throttle_ms - 50,
    )


def _batch(size: int) -> Batch:
    return Batch((Record(value=b"x" * size),))


@TABLE.add_for_each([3, 9, 12])
def produce(visit: Visit, version: int) -> None:
    """Send little, then too much, then again too much: the batches are stored, and the connection is muted."""
    topic, user = visit.admin.topic(), _user(visit)
    _limit(visit, user, "producer_byte_rate", RATE)
    client = visit.known(user)
    _measured(client, "produce", version, produce_request(topic, _batch(UNDER)))
    told = _measured(client, "produce", version, produce_request(topic, _batch(OVER)))
    _is_muted(client, told["throttle_time"])
    visit.admin.end_offset_reaches(topic, 2)


@TABLE.add
def produce_without_acks(visit: Visit) -> None:
    """Send too much with acks=0: without answers only the muted connection shows the throttling."""
    topic, user = visit.admin.topic(), _user(visit)
    _limit(visit, user, "producer_byte_rate", RATE)
    client = visit.known(user)
    client.wire.send("produce", 9, produce_request(topic, _batch(FAR_OVER), acks=0))
    visit.admin.end_offset_reaches(topic, 1)
    _is_muted(client, 1_000)


@TABLE.add
def two_connections_of_a_user(visit: Visit) -> None:
    """Overdraw on one connection: the other one of the user is throttled with its next batch; nobody else is."""
    topic, user = visit.admin.topic(), _user(visit)
    _limit(visit, user, "producer_byte_rate", RATE)
    first, second, other = visit.known(user), visit.known(user), visit.known("admin")
    told = _measured(first, "produce", 9, produce_request(topic, _batch(OVER)))
    _measured(second, "produce", 9, produce_request(topic, _batch(1)))
    _measured(other, "produce", 9, produce_request(topic, _batch(OVER)))
    _is_muted(first, told["throttle_time"])


def _filled(visit: Visit, batches: int, size: int) -> Topic:
    topic = visit.admin.topic()
    for _ in range(batches):
        visit.admin.wire.call("produce", 9, produce_request(topic, _batch(size)))
    return topic


@TABLE.add_for_each([4, 7, 12, 17])
def fetch(visit: Visit, version: int) -> None:
    """Fetch more than the quota of one moment, twice. The second answer has no records, and a later fetch
    gets them.
    """
    topic, user = _filled(visit, 2, 55_000), _user(visit)
    _limit(visit, user, "consumer_byte_rate", RATE)
    client = visit.known(user)
    ask = {"max_wait": 0, "partition_max_bytes": 55_500}
    _measured(client, "fetch", version, fetch_request(topic, 0, **ask))
    told = _measured(client, "fetch", version, fetch_request(topic, 1, **ask))
    _is_muted(client, told["throttle_time"])


@TABLE.add_for_each([4, 12, 17])
def fetch_of_a_batch_beyond_the_quota(visit: Visit, version: int) -> None:
    """Fetch one batch that is larger than what an idle client may read at once: the answer has no records."""
    topic, user = _filled(visit, 1, 120_000), _user(visit)
    _limit(visit, user, "consumer_byte_rate", RATE)
    client = visit.known(user)
    told = _measured(client, "fetch", version, fetch_request(topic, 0, max_wait=0), least_ms=1_900)
    _is_muted(client, told["throttle_time"])


def _mutation(api: str, visit: Visit, topic: Topic, number: int, partitions: int) -> Plain:
    if api == "create_topics":
        row = {"name": visit.name(f"new-{number}"), "num_partitions": partitions, "replication_factor": 1}
        return {"topics": [row], "timeout": 10_000, "validate_only": True}
    if api == "create_partitions":
        row = {"name": topic.name, "count": 1 + partitions, "assignments": None}
        return {"topics": [row], "timeout": 10_000, "validate_only": True}
    row = {"name": visit.name(f"old-{number}"), "topic_id": None}
    return {"topics": [row], "topic_names": [row["name"]], "timeout": 10_000}


FIRST_STRICT = {"create_topics": 6, "create_partitions": 3, "delete_topics": 5}


@TABLE.add_for_each(FIRST_STRICT)
def mutations(visit: Visit, first_strict: int) -> None:
    """Change topics until the quota is overdrawn, with a version that refuses and with one that only
    throttles.
    """
    api = next(name for name, version in FIRST_STRICT.items() if version == first_strict)
    user, topic = _user(visit), visit.admin.topic()
    if api == "delete_topics":
        for number in range(3):
            visit.admin.topic(f"old-{number}", partitions=12)
    _limit(visit, user, "controller_mutation_rate", 1.0)
    numbers = itertools.count()
    for version in (first_strict, first_strict, first_strict - 1):
        client = visit.known(user)
        _measured(client, api, version, _mutation(api, visit, topic, next(numbers), 12))


@TABLE.add
def several_mutations_in_a_request(visit: Visit) -> None:
    """Create three topics at once: those after the one that overdraws are refused."""
    user = _user(visit)
    _limit(visit, user, "controller_mutation_rate", 1.0)
    rows = [
        {"name": visit.name(f"new-{number}"), "num_partitions": 7, "replication_factor": 1}
        for number in range(4)
    ]
    _measured(
        visit.known(user), "create_topics", 7, {"topics": rows, "timeout": 10_000, "validate_only": True}
    )


@TABLE.add
def request_time(visit: Visit) -> None:
    """Take more of the gateway's time than `request_percentage` allows: the answers throttle the client, for
    at most a second each.
    """
    user = _user(visit)
    _limit(visit, user, "request_percentage", 0.0001)
    client = visit.known(user)
    told = 0
    for _ in range(20):
        answer = client.wire.call("metadata", 12, topics=[]).fields
        told = answer["throttle_time"]
        if told:
            break
    client.note("throttled", at_most_a_second=0 < told <= 1_000)


@TABLE.add
def most_specific(visit: Visit) -> None:
    """Set a small quota of the user and a large one of the user with the client id: only the latter counts."""
    topic, user = visit.admin.topic(), _user(visit)
    _limit(visit, user, "producer_byte_rate", RATE)
    entity = [
        {"entity_type": "user", "entity_name": user},
        {"entity_type": "client-id", "entity_name": "wire"},
    ]
    ops = [{"key": "producer_byte_rate", "value": 100 * RATE, "remove": False}]
    visit.admin.call("alter_client_quotas", 1, entries=[{"entity": entity, "ops": ops}], validate_only=False)
    components = [
        {"entity_type": "user", "match_type": 0, "match": user},
        {"entity_type": "client-id", "match_type": 0, "match": "wire"},
    ]
    visit.admin.until(
        "describe_client_quotas",
        1,
        lambda answer: bool(answer["entries"]),
        {"components": components, "strict": True},
    )
    await_applied(visit.admin)
    _measured(visit.known(user), "produce", 9, produce_request(topic, _batch(OVER)))


@TABLE.add
def pipelined(visit: Visit) -> None:
    """Send two batches and another request at once: the requests that were read already are answered at once,
    the others after the throttle time.
    """
    topic, user = visit.admin.topic(), _user(visit)
    _limit(visit, user, "producer_byte_rate", RATE)
    client = visit.known(user)
    begun_s = time.monotonic()
    ids = [
        client.wire.send("produce", 9, produce_request(topic, _batch(FAR_OVER))),
        client.wire.send("metadata", 12, {"topics": []}),
    ]
    told = client.wire.receive("produce", 9, ids[0]).fields
    at_once = time.monotonic() - begun_s < told["throttle_time"] / 2_000
    client.wire.receive("metadata", 12, ids[1])
    waited_ms = (time.monotonic() - begun_s) * 1000
    client.note(
        "answers",
        error=told["responses"][0]["partition_responses"][0]["error_code"],
        first_at_once=at_once,
        second_waited=waited_ms >= 0.8 * told["throttle_time"],
    )
