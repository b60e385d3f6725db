"""AlterUserScramCredentials (key 51, version 0): set and delete the SCRAM credentials of users. Rights:
`ALTER` on the cluster.

A request changes at most one credential of a user; a user who is refused does not affect the other users of
the request. A change counts for the next login, because a login looks up the credential when it begins
(`security/sasl/scram.py`); open connections keep theirs. Source: Kafka's
ControllerApis.handleAlterUserScramCredentials, ScramControlManager.

DescribeUserScramCredentials (key 50, version 0): list the SCRAM users, their mechanisms and iterations.
Rights: `DESCRIBE` on the cluster.

A client without DESCRIBE on the cluster gets a row with CLUSTER_AUTHORIZATION_FAILED for each user that the
request names. As in Kafka, these rows do not say which user they stand for. Source: Kafka's
KafkaApis.handleDescribeUserScramCredentialsRequest, ScramImage.describe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.changes import change_metadata_until_it_counts, log_change
from seqgate.gateway.metadata.decision import ApiError, Decision, told
from seqgate.gateway.metadata.java_hash_map import in_java_hash_map_order, string_hash
from seqgate.gateway.metadata.records import MetadataRecord, RemoveUserScramCredentialRecord
from seqgate.gateway.metadata.users import StoredUsers, record_of_credential
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.services import TopicServices
from seqgate.gateway.security.acls.access import Operation
from seqgate.gateway.security.sasl.scram_credential import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramCredential,
    ScramHash,
    credential_of,
)

MAX_NAME_BYTES: Final = 1_024
"""Bytes of a user's name in UTF-8; longer: UNACCEPTABLE_CREDENTIAL. Kafka has no such limit."""
MAX_SALT_BYTES: Final = 1_024
"""Bytes of a salt, and of a salted password; more: UNACCEPTABLE_CREDENTIAL. Kafka has no such limit."""
_MECHANISMS: Final = frozenset(ScramHash)
_DENIED: Final = ApiError(ErrorCode.cluster_authorization_failed, "Cluster authorization failed.")


class Deletion(NamedTuple):
    """The request to delete the credential of a user; `mechanism` is the number that the client sent."""

    name: str
    mechanism: int


class Upsertion(NamedTuple):
    """The request to set the credential of a user; `mechanism` is the number that the client sent."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"Upsertion(name={self.name!r}, mechanism={self.mechanism}, iterations={self.iterations})"


async def handle_alter(context: RequestContext[TopicServices], request: Any) -> Any:
    names = dict.fromkeys(entry.name for entry in chain(request.deletions, request.upsertions))
    outcomes: Mapping[str, ApiError | None] | ApiError = _DENIED
    if context.may_cluster(Operation.ALTER):
        outcomes = await _alter(context, request)
    if isinstance(outcomes, ApiError):
        outcomes = dict.fromkeys(names, outcomes)
    rows = [
        context.row("AlterUserScramCredentialsResult", user=name, **told(error))
        async for name, error in in_slices(outcomes.items())
    ]
    return context.answer(results=tuple(rows))


async def _alter(
    context: RequestContext[TopicServices], request: Any
) -> Mapping[str, ApiError | None] | ApiError:
    deletions = [Deletion(entry.name, entry.mechanism) async for entry in in_slices(request.deletions)]
    upsertions = [
        Upsertion(entry.name, entry.mechanism, entry.iterations, entry.salt, entry.salted_password)
        async for entry in in_slices(request.upsertions)
    ]
    most = context.node.config.int("seqgate.scram.users.max")

    def note(outcomes: Mapping[str, ApiError | None]) -> None:
        deleted = [name for name, _ in deletions if not outcomes[name]]
        log_change(context, "deleted the SCRAM credential of", deleted)
        changed = [change.name for change in upsertions if not outcomes[change.name]]
        log_change(context, "set the SCRAM credential of", changed)

    return await change_metadata_until_it_counts(
        context, lambda image: alter_users(image.users, deletions, upsertions, most=most), note=note
    )


def alter_users(
    stored: StoredUsers, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion], *, most: int
) -> Decision[dict[str, ApiError | None]]:
    """Set and delete credentials of up to `most` users; the answer has an error, or None, for each."""
    changes: dict[str, Deletion | Upsertion] = {}
    errors: dict[str, ApiError] = {}
    wanted: list[Deletion | Upsertion] = [*deletions, *upsertions]
    for change in wanted:
        if change.name in errors:
            continue
        if changes.pop(change.name, None) is not None:
            errors[change.name] = ApiError(
                ErrorCode.duplicate_resource, "A user credential cannot be altered twice in the same request"
            )
            continue
        error = _error(stored, change)
        if error is None:
            changes[change.name] = change
        else:
            errors[change.name] = error
    _limit(stored, changes, errors, most)
    return Decision([_record_of(change) for change in changes.values()], {**dict.fromkeys(changes), **errors})


def _error(stored: StoredUsers, change: Deletion | Upsertion) -> ApiError | None:
    if not change.name:
        return _unacceptable("Username must not be empty")
    if change.mechanism not in _MECHANISMS:
        return ApiError(ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")
    if isinstance(change, Upsertion):
        return _error_of_credential(change)
    if stored.find(ScramHash(change.mechanism), change.name) is None:
        return ApiError(
            ErrorCode.resource_not_found, "Attempt to delete a user credential that does not exist"
        )
    return None


def _error_of_credential(change: Upsertion) -> ApiError | None:
    if change.iterations < MIN_ITERATIONS:
        return _unacceptable(
            f"Too few iterations: at least {MIN_ITERATIONS} are needed, not {change.iterations}"
        )
    if change.iterations > MAX_ITERATIONS:
        return _unacceptable(
            f"Too many iterations: at most {MAX_ITERATIONS} are allowed, not {change.iterations}"
        )
    length = len(change.name.encode())
    if length > MAX_NAME_BYTES:
        return _unacceptable(f"The user name may have {MAX_NAME_BYTES} bytes, not {length}")
    if not change.salted_password:
        return _unacceptable("The salted password must not be empty")
    length = max(len(change.salt), len(change.salted_password))
    if length > MAX_SALT_BYTES:
        return _unacceptable(
            f"The salt and the salted password may have {MAX_SALT_BYTES} bytes each, not {length}"
        )
    return None


def _unacceptable(message: str) -> ApiError:
    return ApiError(ErrorCode.unacceptable_credential, message)


def _limit(
    stored: StoredUsers, changes: dict[str, Deletion | Upsertion], errors: dict[str, ApiError], most: int
) -> None:
    """Move the new users beyond the limit from the changes to the errors."""
    new = [
        name
        for name, change in changes.items()
        if isinstance(change, Upsertion) and name not in stored.by_name
    ]
    for name in new[max(0, most - len(stored.by_name)) :]:
        del changes[name]
        errors[name] = ApiError(
            ErrorCode.policy_violation,
            f"{most} users have credentials, as many as seqgate.scram.users.max allows; delete some or raise "
            "it.",
        )


def _record_of(change: Deletion | Upsertion) -> MetadataRecord:
    hashing = ScramHash(change.mechanism)
    if isinstance(change, Deletion):
        return RemoveUserScramCredentialRecord(change.name, hashing)
    made = credential_of(hashing, change.salted_password, change.salt, change.iterations)
    return record_of_credential(change.name, hashing, made)


async def handle_describe(context: RequestContext[TopicServices], request: Any) -> Any:
    """Return the mechanisms and iterations of the users that the request names, or of all."""
    names = [user.name for user in request.users or ()]
    denied = None if context.may_cluster(Operation.DESCRIBE) else _DENIED
    found: Iterable[tuple[str, Mapping[ScramHash, ScramCredential] | ApiError]]
    if denied is not None:
        found = repeat(("", denied), len(names))
    else:
        found = describe_users(context.services.metadata_log.image.users, names)
    rows = [_result(context, name, outcome) async for name, outcome in in_slices(found)]
    return context.answer(**told(denied, ""), results=tuple(rows))


def describe_users(
    stored: StoredUsers, names: Sequence[str]
) -> Iterator[tuple[str, Mapping[ScramHash, ScramCredential] | ApiError]]:
    """Yield each named user once, or all users when none is named, with the credentials or the error. The
    users come in the order of Java's HashMap, those of one bucket as they are named or were created.
    """
    if not names:
        present = dict(stored.by_name)  # which other requests change
        for name in in_java_hash_map_order(present, string_hash):
            yield name, present[name]
        return
    counts = Counter(names)
    for name in in_java_hash_map_order(counts, string_hash):
        if counts[name] > 1:
            text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            yield name, ApiError(ErrorCode.duplicate_resource, text)
        elif name in stored.by_name:
            yield name, stored.by_name[name]
        else:
            text = f"Attempt to describe a user credential that does not exist: {name}"
            yield name, ApiError(ErrorCode.resource_not_found, text)


def _result(
    context: RequestContext[TopicServices], name: str, outcome: Mapping[ScramHash, ScramCredential] | ApiError
) -> Any:
    error, credentials = (outcome, {}) if isinstance(outcome, ApiError) else (None, outcome)
    infos = [
        {"mechanism": hashing.value, "iterations": credential.iterations}
        for hashing, credential in sorted(credentials.items())
    ]
    return context.row(
        "DescribeUserScramCredentialsResult", user=name, **told(error, ""), credential_infos=infos
    )


DESCRIBE_USER_SCRAM_CREDENTIALS_API = Api(
    key=50, versions=(0, 0), reaches=api.topics, handle=handle_describe, is_long=True
)


ALTER_USER_SCRAM_CREDENTIALS_API = Api(key=51, versions=(0, 0), reaches=api.topics, handle=handle_alter)
