"""One topic: created, shown, changed and deleted, each change after a question."""

from __future__ import annotations

from seqgate.gateway.console.asking.topics import topic_lines
from tests.support.console_client import ConsoleClient, text_of, title_of
from tests.support.gateway_process import GatewayProcess
from tests.system.commands.conftest import seqgate


def test_a_topic_is_created_after_a_question(console: ConsoleClient) -> None:
    fields = {"name": "tp-new", "partitions": "3", "settings": "retention.ms=3600000\n"}
    asked = console.send("/create-topic", fields)
    assert "Create topic tp-new?" in text_of(asked)
    assert "3600000" in text_of(asked)
    assert "there is no topic tp-new" in text_of(console.page("/topics/tp-new"))
    page = console.send("/create-topic", {**fields, "confirmed": "yes"})
    assert "Topic tp-new is created." in text_of(page)
    assert "Topic tp-new is created." not in text_of(console.page("/topics/tp-new"))
    settings = text_of(console.page("/topics/tp-new/settings?filter=retention.ms"))
    assert "retention.ms" in settings
    assert "this topic" in settings


def test_a_wrong_topic_comes_back_with_the_form(console: ConsoleClient) -> None:
    page = console.send("/create-topic", {"name": "tp wrong", "partitions": "2"}, status=400)
    assert "can't be created" in text_of(page)
    assert 'value="tp wrong"' in page
    assert "NAME=VALUE" in console.send("/create-topic", {"name": "a", "settings": "x"}, status=400)
    assert "partitions must be" in console.send("/create-topic", {"name": "a", "partitions": "0"}, status=400)


def test_a_setting_is_changed_and_unset(console: ConsoleClient, shared_gateway: GatewayProcess) -> None:
    seqgate("topics", "create", "tp-set", "--bootstrap", shared_gateway.bootstrap)
    path, fields = "/topics/tp-set/settings", {"name": "retention.ms", "value": "60000", "action": "set"}
    asked = console.send(path, fields)
    assert "604800000 (7 d) 60000 (1 min)" in text_of(asked)
    assert "this topic" not in text_of(console.page(f"{path}?filter=retention.ms"))
    assert "retention.ms of topic tp-set is 60000 (1 min)." in text_of(console.confirmed(path, fields))
    assert "this topic" in text_of(console.page(f"{path}?filter=retention.ms"))
    page = text_of(console.confirmed(path, {"name": "retention.ms", "action": "unset"}))
    assert "retention.ms of topic tp-set is no longer set." in page, "the broker may set another value"
    refused = console.send(path, {**fields, "value": "soon", "confirmed": "yes"}, status=400)
    assert "is not changed" in text_of(refused)
    assert "has no configuration" in text_of(console.send(path, {"name": "retention.m"}, status=400))


def test_settings_are_told_in_units_and_only_the_changed_ones(
    console: ConsoleClient, shared_gateway: GatewayProcess
) -> None:
    changed = ("--set", "segment.bytes=1073741824", "--set", "retention.ms=-1")
    seqgate("topics", "create", "tp-units", *changed, "--bootstrap", shared_gateway.bootstrap)
    every = text_of(console.page("/topics/tp-units/settings"))
    assert "86400000 (1 d)" in every
    page = text_of(console.page("/topics/tp-units/settings?changed=yes"))
    assert "1073741824 (1 GiB)" in page
    assert "-1 (no limit)" in page
    assert "delete.retention.ms" not in page
    seqgate("topics", "create", "tp-plain", "--bootstrap", shared_gateway.bootstrap)
    assert "Every setting has its default" in text_of(console.page("/topics/tp-plain/settings?changed=yes"))


def test_partitions_are_added_and_never_removed(
    console: ConsoleClient, shared_gateway: GatewayProcess
) -> None:
    seqgate("topics", "create", "tp-more", "--partitions", "2", "--bootstrap", shared_gateway.bootstrap)
    assert "has 2 partitions already" in console.send(
        "/topics/tp-more/partitions", {"partitions": "2"}, status=400
    )
    page = console.confirmed("/topics/tp-more/partitions", {"partitions": "5"})
    assert "Topic tp-more has 5 partitions." in text_of(page)


def test_a_topic_is_deleted_by_typing_its_name(
    console: ConsoleClient, shared_gateway: GatewayProcess
) -> None:
    seqgate("topics", "create", "tp-old", "--bootstrap", shared_gateway.bootstrap)
    asked = console.send("/topics/tp-old/delete", {})
    assert "Type tp-old to confirm" in text_of(asked)
    again = console.send("/topics/tp-old/delete", {"confirmed": "yes", "typed": "tp-ol"})
    assert title_of(again) == "Delete topic tp-old?"
    done = console.send("/topics/tp-old/delete", {"confirmed": "yes", "typed": "tp-old"})
    assert "Topic tp-old is deleted." in text_of(done)
    assert "there is no topic tp-old" in text_of(console.page("/topics/tp-old"))


def test_a_topic_that_does_not_exist_is_told_with_the_nearest(
    console: ConsoleClient, shared_gateway: GatewayProcess
) -> None:
    seqgate("topics", "create", "tp-orders", "--bootstrap", shared_gateway.bootstrap)
    topic_lines.forget()
    assert "the nearest name is tp-orders" in text_of(console.page("/topics/tp-order"))
    assert "there is no topic" in text_of(console.page("/topics/%3Cscript%3E"))
