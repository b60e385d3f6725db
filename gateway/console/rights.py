"""Turns a refusal into a sentence that names the missing right and the command that gives it. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Final, NamedTuple

_REFUSED: Final = re.compile(r"\b(CLUSTER|TOPIC|GROUP|TRANSACTIONAL_ID)_AUTHORIZATION_FAILED\b")
"""Kafka's errors for a missing right on a resource."""
_NEEDED: Final = re.compile(r"\bover the network needs (DESCRIBE|ALTER) on the cluster")
"""The words of a gateway to a person who may not ask it about itself."""
_LACKED: Final = re.compile(r"\blacks the right to (\w+) the cluster")
_NAMED: Final = re.compile(r"\b(?:topic|group) ([\w.-]+)", re.ASCII)
CLUSTER: Final = "CLUSTER"
_RESOURCES: Final = {
    "TOPIC": ("topic", "--topic"),
    "GROUP": ("group", "--group"),
    "TRANSACTIONAL_ID": ("transactional id", "--transactional-id"),
}
FIELDS: Final = {"TOPIC": "topic", "GROUP": "group", "TRANSACTIONAL_ID": "id"}
"""The fields of addresses and forms that name each resource."""
ANYBODY: Final = "ANONYMOUS"
"""Kafka's principal of clients without a login."""
_OPERATIONS: Final = {
    "settings": ("describe-configs", "alter-configs"),
    "quotas": ("describe-configs", "alter-configs"),
    "produce": ("write", "write"),
    "records": ("read", "read"),
    "reset": ("describe", "read"),
    "delete": ("describe", "delete"),
    "create": ("create", "create"),
    "abort": ("describe", "write"),
}
"""The operations to look and to change, by a word of the address; the first word here that it has counts."""


def operation_of(path: str, *, changes: bool) -> str:
    """Return the operation of Kafka's ACLs that a request needs, as `seqgate acls add --operation` has it."""
    parts = set(path.replace("-", "/").split("/"))
    look, change = next((both for word, both in _OPERATIONS.items() if word in parts), ("describe", "alter"))
    return change if changes else look


class MissingRight(NamedTuple):
    sentence: str
    command: str

    @property
    def advice(self) -> str:
        """The sentence, and the command that gives the right."""
        return f"{self.sentence}; somebody who may change access gives it: {self.command}"


def is_refused(error: str | None) -> bool:
    """Return whether an error says that the person lacks a right: whoever answered so is well."""
    return error is not None and _REFUSED.search(error) is not None


def missing_right(
    error: str, user: str, operation: str, names: Mapping[str, str] | None = None
) -> MissingRight | None:
    """Return the right that an error asks for; None for another error.

    `operation` is what the page needs, as `seqgate acls add --operation` spells it; `names` are those that
    the address or the form has, by Kafka's types of resources.
    """
    refused = _REFUSED.search(error)
    if refused is None:
        return None
    kind = refused[1]
    if kind == CLUSTER:
        lacked = _LACKED.search(error)
        return right_on_cluster(user, operation if lacked is None else lacked[1])
    noun, option = _RESOURCES[kind]
    named = _NAMED.search(error)
    name = (names or {}).get(kind) or (named[1] if named is not None else "")
    what = f"{noun} {name}" if name else f"the {noun}"
    return _missing(kind, what, (option, name or "NAME"), user, operation)


def needed_on_cluster(error: str) -> str | None:
    """Return the right on the cluster that a gateway asks for before it answers; None for another error."""
    needed = _NEEDED.search(error)
    return None if needed is None else needed[1].lower()


def right_on_cluster(user: str, operation: str) -> MissingRight:
    """Return the right to an operation on the cluster, which the person lacks."""
    return _missing(CLUSTER, "the cluster", ("--cluster",), user, operation)


def _missing(kind: str, what: str, options: tuple[str, ...], user: str, operation: str) -> MissingRight:
    who = f"user {user}" if user else "a client without a login"
    verb, _, configs = operation.partition("-")
    what = f"the configs of {what}" if configs else what
    sentence = f"{who} lacks the right to {verb} {what} ({kind}_AUTHORIZATION_FAILED)"
    principal = f"User:{user or ANYBODY}"
    command = ["seqgate", "acls", "add", "--allow-principal", principal, "--operation", operation, *options]
    return MissingRight(sentence, shlex.join(command))
