"""AlterUserScramCredentials (key 51, version 0): set and delete the SCRAM credentials of users. Rights:
`ALTER` on the cluster.

A change counts for the next login, because a login looks up the credential when it begins; open connections
keep theirs. `alter_users` in `metadata/users.py` decides. Source: Kafka's
ControllerApis.handleAlterUserScramCredentials, ScramControlManager.

DescribeUserScramCredentials (key 50, version 0): list the SCRAM users, their mechanisms and iterations.
Rights: `DESCRIBE` on the cluster.

A client without DESCRIBE on the cluster gets a row with CLUSTER_AUTHORIZATION_FAILED for each user that the
request names. As in Kafka, these rows do not say which user they stand for. Source: Kafka's
KafkaApis.handleDescribeUserScramCredentialsRequest, ScramImage.describe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.changes import change_metadata, log_change
from seqgate.gateway.metadata.decision import ApiError, told
from seqgate.gateway.metadata.java_hash_map import in_hash_order, string_hash
from seqgate.gateway.metadata.users import Deletion, StoredUsers, Upsertion, alter_users
from seqgate.gateway.runtime.services import TopicServices
from seqgate.gateway.security.acls.access import Operation
from seqgate.gateway.security.sasl.scram_credential import ScramCredential, ScramHash


async def handle_alter_user_scram_credentials(context: RequestContext[TopicServices], request: Any) -> Any:
    deletions = [Deletion(entry.name, entry.mechanism) for entry in request.deletions]
    upsertions = [
        Upsertion(entry.name, entry.mechanism, entry.iterations, entry.salt, entry.salted_password)
        for entry in request.upsertions
    ]
    outcomes = await _alter(context, deletions, upsertions)
    return context.answer(results=[{"user": name, **told(error)} for name, error in outcomes.items()])


async def _alter(
    context: RequestContext[TopicServices], deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
) -> Mapping[str, ApiError | None]:
    names = [deletion.name for deletion in deletions] + [upsertion.name for upsertion in upsertions]
    if not context.may_cluster(Operation.ALTER):
        refusal = ApiError(ErrorCode.cluster_authorization_failed, "Cluster authorization failed.")
        return dict.fromkeys(names, refusal)
    most = context.node.config.int("seqgate.scram.users.max")

    def note(outcomes: Mapping[str, ApiError | None]) -> None:
        deleted = [name for name, _ in deletions if not outcomes[name]]
        log_change(context, "deleted the SCRAM credential of", deleted)
        changed = [change.name for change in upsertions if not outcomes[change.name]]
        log_change(context, "set the SCRAM credential of", changed)

    outcomes = await change_metadata(
        context, lambda image: alter_users(image.users, deletions, upsertions, most=most), note=note
    )
    return dict.fromkeys(names, outcomes) if isinstance(outcomes, ApiError) else outcomes


async def handle_describe_user_scram_credentials(context: RequestContext[TopicServices], request: Any) -> Any:
    """Return the mechanisms and iterations of the users that the request names, or of all."""
    names = [user.name for user in request.users or ()]
    error = ApiError(ErrorCode.none, "")
    if context.may_cluster(Operation.DESCRIBE):
        found = describe_users(context.services.metadata_log.image.users, names)
        results = [_result(name, outcome) for name, outcome in found]
    else:
        error = ApiError(ErrorCode.cluster_authorization_failed, "Cluster authorization failed.")
        results = [_result("", error) for _ in names]
    return context.answer(**told(error), results=results)


def describe_users(
    stored: StoredUsers, names: Sequence[str]
) -> Iterator[tuple[str, Mapping[ScramHash, ScramCredential] | ApiError]]:
    """Yield each named user once, or all users when none is named, with the credentials or the error. The
    users come in the order of Kafka's hash table, those of one bucket as they are named or were created.
    """
    if not names:
        for name in in_hash_order(stored.by_name, string_hash):
            yield name, stored.by_name[name]
        return
    counts = Counter(names)
    for name in in_hash_order(counts, string_hash):
        if counts[name] > 1:
            text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            yield name, ApiError(ErrorCode.duplicate_resource, text)
        elif name in stored.by_name:
            yield name, stored.by_name[name]
        else:
            text = f"Attempt to describe a user credential that does not exist: {name}"
            yield name, ApiError(ErrorCode.resource_not_found, text)


def _result(name: str, outcome: Mapping[ScramHash, ScramCredential] | ApiError) -> dict[str, Any]:
    error = outcome if isinstance(outcome, ApiError) else ApiError(ErrorCode.none, "")
    credentials = {} if isinstance(outcome, ApiError) else outcome
    return {
        "user": name,
        **told(error),
        "credential_infos": [
            {"mechanism": hashing.value, "iterations": credential.iterations}
            for hashing, credential in sorted(credentials.items())
        ],
    }


DESCRIBE_USER_SCRAM_CREDENTIALS_API = Api(
    50, 0, 0, api.topics, handle=handle_describe_user_scram_credentials, is_long=True
)


ALTER_USER_SCRAM_CREDENTIALS_API = Api(51, 0, 0, api.topics, handle=handle_alter_user_scram_credentials)
