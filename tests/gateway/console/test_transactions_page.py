"""Transactional ids, hanging transactions, and their aborts."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from seqgate.gateway.testing import Broker
from tests.compat.topics import fresh_topic
from tests.support.console_client import ConsoleClient, console_client, text_of, title_of
from tests.support.gateway_process import GatewayProcess
from tests.support.producing import begun, open_transaction, send

WAIT_S = 120.0


@pytest.fixture
def topic(measured_gateway: GatewayProcess) -> str:
    return fresh_topic(measured_gateway.bootstrap, "orders", partitions=2)


def path_of(name: str) -> str:
    return f"/transactions/one?id={quote(name, safe='')}"


def start_of(console: ConsoleClient, name: str) -> str:
    found = re.search(r'name="start_ms" value="(\d+)"', console.page(path_of(name)))
    assert found is not None
    return found[1]


def test_lists_and_filters(unmeasured: ConsoleClient, measured_gateway: GatewayProcess, topic: str) -> None:
    bootstrap = measured_gateway.bootstrap
    idle, busy, late = f"idle-{topic}", f"busy-{topic}", f"late-{topic}"
    idle_id, _ = begun(bootstrap, idle)
    open_transaction(bootstrap, busy, topic, 0, 1)
    open_transaction(bootstrap, late, topic, 1, timeout_ms=1)

    def listed(query: str) -> str:
        return text_of(unmeasured.page(f"/transactions?{query}"))

    whole = listed(f"pattern=.*-{topic}")
    assert all(name in whole for name in (idle, busy, late))
    assert re.search(rf"{busy} open Ongoing \S+ s 1 min 2 \d+ 0", whole), whole
    assert "overdue" in whole
    assert idle not in listed(f"pattern=.*{topic}&state=Ongoing")
    assert busy not in listed(f"pattern=.*{topic}&older_than_s=3600")
    assert idle not in listed(f"pattern=.*{topic}&older_than_s=3600")
    assert idle in listed(f"producer_id={idle_id}")
    assert busy not in listed(f"producer_id={idle_id}")
    assert "No transactional id passes" in listed("pattern=nothing")
    assert "state must be one of" in listed("state=%3Cscript%3E")
    assert "must be a number" in listed("older_than_s=x")
    assert "the pattern '(' is not a regular expression" in listed("pattern=(")


def test_one_transaction_with_the_offsets_that_it_holds(
    measured: ConsoleClient, unmeasured: ConsoleClient, measured_gateway: GatewayProcess, topic: str
) -> None:
    name = f"mover-{topic}"
    producer = Producer({"bootstrap.servers": measured_gateway.bootstrap, "transactional.id": name})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"value", partition=1)
    consumer = Consumer({"bootstrap.servers": measured_gateway.bootstrap, "group.id": "g<b>"})
    producer.send_offsets_to_transaction(
        [TopicPartition(topic, 0, 7)], consumer.consumer_group_metadata(), WAIT_S
    )
    consumer.close()
    assert producer.flush(WAIT_S) == 0
    text = text_of(measured.page(path_of(name)))
    assert f"{topic} -1 0 0 1" in text
    assert "Client rdkafka (127.0.0.1, confluent-kafka-python" in text
    listed = text_of(unmeasured.page(f"/transactions?pattern={name}"))
    assert re.search(rf"{name} open Ongoing .* rdkafka \(127\.0\.0\.1, confluent-kafka-python", listed), (
        listed
    )
    assert f"g<b> {topic}-0 7 waits for the transaction" in text
    assert "--metrics" in text_of(unmeasured.page(path_of(name)))
    producer.abort_transaction(WAIT_S)
    ended = measured.page(path_of(name))
    assert "CompleteAbort" in ended
    assert 'action="/transactions/abort"' not in ended


@pytest.mark.parametrize("prefix", ["plain-", '<script>alert("1")</script>\u202e', "new\nline-", " 'blank' "])
def test_an_abort_asks_for_the_typed_name(
    unmeasured: ConsoleClient, measured_gateway: GatewayProcess, topic: str, prefix: str
) -> None:
    name = prefix + topic
    producer_id, epoch = open_transaction(measured_gateway.bootstrap, name, topic, 0, 1)
    assert "<script>alert" not in unmeasured.page(path_of(name))
    fields = {"id": name, "start_ms": start_of(unmeasured, name)}
    asked = unmeasured.send("/transactions/abort", fields)
    assert "<script>alert" not in asked
    assert "Its records are discarded in 2 partitions" in text_of(asked)
    for typed in ("", "wrong"):
        again = unmeasured.send("/transactions/abort", {**fields, "confirmed": "yes", "typed": typed})
        assert 'name="confirmed"' in again
    assert send(measured_gateway.bootstrap, topic, producer_id, 1, epoch=epoch, transactional_id=name)[0] == 0
    typed = name if prefix == "plain-" else str(producer_id)
    done = unmeasured.confirmed("/transactions/abort", fields, typed=typed)
    assert f"is aborted in 2 partitions, and producer epoch {epoch} is fenced" in text_of(done)
    assert "Empty" in text_of(done)
    assert "Abort the transaction" not in text_of(done)
    late = send(measured_gateway.bootstrap, topic, producer_id, 2, epoch=epoch, transactional_id=name)
    assert late[0] != 0
    refused = unmeasured.send("/transactions/abort", fields, status=400)
    assert "has no open transaction" in text_of(refused)


def test_an_abort_never_hits_a_later_transaction(
    unmeasured: ConsoleClient, measured_gateway: GatewayProcess, topic: str
) -> None:
    name = f"later-{topic}"
    open_transaction(measured_gateway.bootstrap, name, topic, 0)
    fields = {"id": name, "start_ms": str(int(start_of(unmeasured, name)) - 1)}
    refused = unmeasured.send(
        "/transactions/abort", {**fields, "confirmed": "yes", "typed": name}, status=400
    )
    assert "another one has begun" in text_of(refused)


def test_a_form_without_the_token_aborts_nothing(
    unmeasured: ConsoleClient, measured_gateway: GatewayProcess, topic: str
) -> None:
    name = f"kept-{topic}"
    open_transaction(measured_gateway.bootstrap, name, topic, 0)
    fields = {"id": name, "confirmed": "yes", "typed": name}
    unmeasured.page("/transactions")
    for token in ("", "0" * 64):
        unmeasured.send("/transactions/abort", fields, token=token, status=403)
        unmeasured.send("/transactions/abort-hanging", fields, token=token, status=403)
    assert "Ongoing" in unmeasured.page(path_of(name))


def test_hanging_transactions_are_found_and_aborted(
    unmeasured: ConsoleClient, measured_gateway: GatewayProcess, topic: str
) -> None:
    producer_id, _ = begun(measured_gateway.bootstrap, None)
    assert send(measured_gateway.bootstrap, topic, producer_id, 0, transactional_id="gone")[0] == 0
    text = text_of(unmeasured.page(f"/transactions/hanging?topic={topic}"))
    assert "No transactional id has this producer id" in text
    assert "wire (127.0.0.1)" in text
    fields = {"topic": topic, "partition": "0", "first_offset": "0"}
    again = unmeasured.send("/transactions/abort-hanging", {**fields, "confirmed": "yes", "typed": topic})
    assert 'name="confirmed"' in again
    unmeasured.confirmed("/transactions/abort-hanging", fields, typed=f"{topic}-0")
    assert "No transaction hangs" in text_of(unmeasured.page(f"/transactions/hanging?topic={topic}"))
    refused = unmeasured.send("/transactions/abort-hanging", fields, status=400)
    assert "no open transaction that begins at offset 0" in text_of(refused)


def test_an_offline_coordinator_is_told_beside_what_hangs() -> None:
    with Broker() as broker, console_client(broker.bootstrap) as console:
        begun(broker.bootstrap, "idle")
        assert "No transaction hangs" in text_of(console.page("/transactions/hanging"))
        with broker.faults.partition_offline("__transaction_state"):
            pages = [text_of(console.page(f"/transactions{page}")) for page in ("", "/hanging")]
        assert all("missing: 0 of __transaction_state is offline" in text for text in pages)
        assert not any("No transaction hangs" in text or "are no transactional ids" in text for text in pages)


def test_unknown_ids_are_told(unmeasured: ConsoleClient) -> None:
    for name in ("nobody", "%ED%A0%80", "%3Cscript%3E"):
        page = unmeasured.page(f"/transactions/one?id={name}")
        assert title_of(page) == "This did not work"
        assert "there is no transactional id" in text_of(page)
    assert "must name a transactional id" in text_of(unmeasured.page("/transactions/one"))
    assert "choose the topic" in text_of(unmeasured.page("/transactions/hanging?partition=1"))
