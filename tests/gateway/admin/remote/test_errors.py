"""Error codes and exceptions of kafka-python become sentences for the operator."""

from __future__ import annotations

from kafka import errors

from seqgate.gateway.admin.remote.cluster import no_topic, refusal, sentence


def test_the_brokers_message_comes_first() -> None:
    assert refusal(0, "fine") is None
    assert refusal(40, "Unknown topic config name: x.") == "Unknown topic config name: x (INVALID_CONFIG)"
    assert refusal(36, None) == "Topic with this name already exists (TOPIC_ALREADY_EXISTS)"
    assert refusal(9_999, "odd") == "odd (error 9999)"


def test_whole_answers_are_not_quoted() -> None:
    quoted = errors.GroupAuthorizationFailedError("ListGroupsRequest failed with response 'Response(…)'.")
    assert "Response(" not in sentence(quoted)
    assert sentence(errors.MessageSizeTooLargeError(None)).endswith("(MESSAGE_TOO_LARGE)")
    assert sentence(errors.KafkaTimeoutError("60 s")) == "the cluster did not answer in time: 60 s"
    assert sentence(errors.KafkaConnectionError("111 ECONNREFUSED")) == "connection refused"
    assert sentence(errors.KafkaConnectionError()) == "KafkaConnectionError"


def test_the_most_similar_topic_is_named() -> None:
    assert str(no_topic("ordrs", ["flights", "orders"])) == (
        "there is no topic ordrs; the nearest name is orders"
    )
    assert str(no_topic("zzz", ["orders"])) == "there is no topic zzz"


def test_a_refused_topic_is_named_with_what_to_do() -> None:
    refused = sentence(errors.TopicAuthorizationFailedError({"orders"}))
    assert refused.startswith("this user lacks a right on topic orders (TOPIC_AUTHORIZATION_FAILED)")
    assert "lacks a right on the topic" in sentence(errors.TopicAuthorizationFailedError())
    assert (
        str(no_topic("orders", [], may_be_hidden=True))
        == "there is no topic orders, or this user may not see it"
    )
