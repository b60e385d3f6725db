"""Sentences for the errors of the Kafka protocol, as kafka-python reports them."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from typing import Any, Final

from kafka import errors

from seqgate.gateway.admin.request import ControlError

_TEXT_OF_ERROR: Final = re.compile(r"\[Error (?P<code>-?\d+)\] \w+(?:: (?P<message>.*))?", re.DOTALL)
_SYSTEM_ERROR: Final = re.compile(r"\b(\d{1,3}) E[A-Z]+\b", re.ASCII)
"""The text of kafka-python for a failed system call, such as `111 ECONNREFUSED`."""
_UNKNOWN: Final = "UnrecognizedBrokerError"
"""The class that kafka-python makes for an error code that it does not know."""
_LONGEST: Final = 500


def refusal(code: int, message: str | None = None) -> str | None:
    """Return a sentence for an error code with the broker's message; None for code 0."""
    if code == 0:
        return None
    kind = errors.for_code(code)
    name = f"error {code}" if kind.__name__ == _UNKNOWN else kind.message
    text = (message or kind.description or "The request failed.").strip().rstrip(".")
    return f"{text} ({name})"


def refusal_of_text(text: str) -> str | None:
    """Return a sentence for a result that kafka-python gives as text: `OK`, or an error with its number."""
    if text == "OK":
        return None
    match = _TEXT_OF_ERROR.fullmatch(text)
    return text if match is None else refusal(int(match["code"]), match["message"])


def sentence(error: Exception) -> str:
    """Return a sentence for an exception of kafka-python."""
    code = getattr(error, "errno", None)
    if isinstance(error, errors.TopicAuthorizationFailedError):
        return _topics_refused(error)
    message = " ".join(str(argument) for argument in error.args if argument not in (None, "None"))
    if isinstance(error, errors.BrokerResponseError) and code is not None:
        # kafka-python quotes whole answers in its messages.
        quotes = "Response(" in message or "Request" in message
        return refusal(code, None if quotes else message) or message
    if isinstance(error, errors.KafkaTimeoutError):
        return f"the cluster did not answer in time: {message}"[:_LONGEST]
    if isinstance(error, errors.IncompatibleBrokerVersion | errors.UnsupportedVersionError):
        return f"the cluster does not serve what this command needs: {message}"[:_LONGEST]
    failed = _SYSTEM_ERROR.search(message)
    if failed is not None:
        return os.strerror(int(failed[1])).lower()
    return (message or type(error).__name__)[:_LONGEST]


def _topics_refused(error: errors.TopicAuthorizationFailedError) -> str:
    """Return a sentence with the topics; kafka-python gives them as a set, or not at all."""
    given = error.args[0] if error.args else None
    topics = sorted(map(str, given)) if isinstance(given, set | frozenset | list | tuple) else []
    named = f"topic {', '.join(topics)}" if topics else "the topic"
    return f"this user lacks a right on {named} (TOPIC_AUTHORIZATION_FAILED); seqgate acls add gives rights"


def no_topic(topic: str, names: Iterable[str], *, may_be_hidden: bool = False) -> ControlError:
    """Return the error for a topic that does not exist, or may be hidden, with the name of the most similar
    topic.
    """
    hidden = ", or this user may not see it" if may_be_hidden else ""
    return ControlError(f"there is no topic {topic}{hidden}{nearest_hint(topic, names)}")


def nearest_hint(name: str, names: Iterable[str]) -> str:
    """Return `; the nearest name is …` for the entry of `names` that is most similar to `name`, or nothing."""
    matches: list[Any] = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return f"; the nearest name is {matches[0]}" if matches else ""
