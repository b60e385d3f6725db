"""The answers about logins in which Seqgate deliberately differs from Apache Kafka, and why."""

from __future__ import annotations

from tests.compat.differential.known_differences import KnownDifference

NO_USERS = (
    "Kafka fails while it makes the error answer and closes the connection; here the answer has no rows"
)

KNOWN_DIFFERENCES: tuple[KnownDifference, ...] = (
    KnownDifference(("illegal_states.odd_request_after_handshake[all users]",), "*", NO_USERS),
)
