from __future__ import annotations

import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.runtime.telemetry import ClientInstance, Instances, Subscriptions
from tests.gateway.telemetry.support import CLIENT, CLIENT_ID, client

INTERVAL_MS = 1000
NOW_MS = 5000.0
NONE, EARLY = ErrorCode.none, ErrorCode.throttling_quota_exceeded
UNKNOWN_ID, BAD_CODEC = ErrorCode.unknown_subscription_id, ErrorCode.unsupported_compression_type


@pytest.fixture
def known() -> Subscriptions:
    made = Subscriptions()
    made.set("s", {"metrics": "*", "interval.ms": str(INTERVAL_MS)})
    return made


@pytest.fixture
def instance(known: Subscriptions) -> ClientInstance:
    return Instances().meet(CLIENT, known, NOW_MS, 10)


def push(instance: ClientInstance, now_ms: float, **changes: Any) -> ErrorCode:
    fields = {
        "subscription_id": instance.choice.subscription_id,
        "compression_type": 0,
        "metrics_bytes": 10,
        "is_terminating": False,
        "max_bytes": 100,
        **changes,
    }
    return instance.push(now_ms=now_ms, **fields)


class TestTheTimeBetweenRequests:
    def test_a_client_asks_once_in_its_interval(self, instance: ClientInstance) -> None:
        asked = [instance.ask(NOW_MS + after) for after in (0, 1, INTERVAL_MS - 1, INTERVAL_MS)]
        assert asked == [NONE, EARLY, EARLY, NONE]

    def test_a_push_counts_for_the_next_question(self, instance: ClientInstance) -> None:
        assert push(instance, NOW_MS) is NONE
        assert instance.ask(NOW_MS + INTERVAL_MS - 1) is EARLY
        assert instance.ask(NOW_MS + INTERVAL_MS) is NONE

    def test_a_client_pushes_once_in_its_interval(self, instance: ClientInstance) -> None:
        pushed = [push(instance, NOW_MS + after) for after in (0, 1, INTERVAL_MS - 1, INTERVAL_MS)]
        assert pushed == [NONE, EARLY, EARLY, NONE]

    def test_a_push_right_after_the_question_is_in_time(self, instance: ClientInstance) -> None:
        for begin_ms in (NOW_MS, NOW_MS + 2 * INTERVAL_MS):
            assert instance.ask(begin_ms) is NONE
            assert push(instance, begin_ms + 1) is NONE
            assert push(instance, begin_ms + 2) is EARLY

    def test_a_clock_that_begins_at_zero_refuses_nobody(self, known: Subscriptions) -> None:
        assert Instances().meet(CLIENT, known, 0.0, 10).ask(0.0) is NONE
        assert push(Instances().meet(CLIENT, known, 0.0, 10), 0.0) is NONE


class TestPushes:
    @pytest.mark.parametrize(
        ("changes", "error"),
        [
            ({"subscription_id": 17}, UNKNOWN_ID),
            ({"compression_type": 5}, BAD_CODEC),
            ({"compression_type": -1}, BAD_CODEC),
            ({"compression_type": 4}, NONE),
            ({"metrics_bytes": 101}, ErrorCode.telemetry_too_large),
            ({"metrics_bytes": 100}, NONE),
            ({"subscription_id": 17, "compression_type": 5}, UNKNOWN_ID),
            ({"compression_type": 5, "metrics_bytes": 101}, BAD_CODEC),
        ],
    )
    def test_the_fields_are_checked(
        self, instance: ClientInstance, changes: dict[str, int], error: ErrorCode
    ) -> None:
        assert push(instance, NOW_MS, **changes) is error

    def test_an_early_push_is_refused_before_its_fields(self, instance: ClientInstance) -> None:
        push(instance, NOW_MS)
        assert push(instance, NOW_MS + 1, subscription_id=17) is EARLY

    def test_a_terminating_push_comes_at_any_time_and_is_the_last(self, instance: ClientInstance) -> None:
        push(instance, NOW_MS)
        assert push(instance, NOW_MS + 1, is_terminating=True) is NONE
        assert push(instance, NOW_MS + 2, is_terminating=True) is ErrorCode.invalid_request
        assert push(instance, NOW_MS + INTERVAL_MS + 1) is ErrorCode.invalid_request

    @pytest.mark.parametrize(
        ("changes", "may_ask"),
        [
            ({"subscription_id": 17}, True),
            ({"compression_type": 9}, True),
            ({"metrics_bytes": 101}, False),
            ({}, False),
        ],
    )
    def test_a_client_asks_again_at_once_when_it_can_do_something_about_the_error(
        self, instance: ClientInstance, changes: dict[str, int], may_ask: bool
    ) -> None:
        instance.ask(NOW_MS)
        push(instance, NOW_MS + 1, **changes)
        assert instance.ask(NOW_MS + 2) is (NONE if may_ask else EARLY)
        assert instance.ask(NOW_MS + 3) is EARLY

    def test_refused_metrics_are_no_reason_to_ask_again(self, instance: ClientInstance) -> None:
        push(instance, NOW_MS, subscription_id=17)
        instance.refuse_content(ErrorCode.invalid_record)
        assert instance.ask(NOW_MS + 1) is EARLY


class TestInstances:
    def test_a_change_of_the_subscriptions_begins_anew(self, known: Subscriptions) -> None:
        instances = Instances()
        before = instances.meet(CLIENT, known, NOW_MS, 10)
        assert before.ask(NOW_MS) is NONE
        known.set("t", {"metrics": "x", "interval.ms": "500"})
        after = instances.meet(client(client_id="renamed"), known, NOW_MS + 1, 10)
        assert after.ask(NOW_MS + 1) is NONE
        assert after.choice.push_interval_ms == 500
        assert after.choice.subscription_id != before.choice.subscription_id
        assert after.description == CLIENT

    def test_the_client_that_asked_least_recently_is_forgotten(self, known: Subscriptions) -> None:
        instances = Instances()
        clients = [client(client_instance_id=uuid.UUID(int=number)) for number in range(10, 13)]
        for described in (clients[0], clients[1], clients[0], clients[2]):
            instances.meet(described, known, NOW_MS, 2)
        assert [described.client_instance_id in instances for described in clients] == [True, False, True]

    @pytest.mark.parametrize(("interval_ms", "lifetime_ms"), [(100, 60_000), (50_000, 150_000)])
    def test_a_silent_client_is_forgotten(self, interval_ms: int, lifetime_ms: int) -> None:
        known = Subscriptions()
        known.set("s", {"interval.ms": str(interval_ms)})
        instances = Instances()
        instances.meet(CLIENT, known, 0.0, 10)
        instances.meet(CLIENT, known, NOW_MS, 10)
        instances.expire(NOW_MS + lifetime_ms - 1)
        assert len(instances) == 1
        instances.expire(NOW_MS + lifetime_ms)
        assert len(instances) == 0

    def test_a_dropped_client_begins_anew(self, known: Subscriptions) -> None:
        instances = Instances()
        instances.meet(CLIENT, known, NOW_MS, 10).ask(NOW_MS)
        instances.drop(CLIENT_ID)
        assert instances.meet(CLIENT, known, NOW_MS, 10).ask(NOW_MS) is NONE
