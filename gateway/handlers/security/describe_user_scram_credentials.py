"""DescribeUserScramCredentials (key 50, version 0): list the SCRAM users, their mechanisms and iterations.

A client without DESCRIBE on the cluster gets a row with CLUSTER_AUTHORIZATION_FAILED for each user that the
request names. As in Kafka, these rows do not say which user they stand for.

Source: Kafka's KafkaApis.handleDescribeUserScramCredentialsRequest, ScramImage.describe.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.metadata.decision import ApiError
from gateway.metadata.users import describe_users
from gateway.protocol.messages import build, response_module
from gateway.runtime.services import TopicServices
from gateway.security.acls.codes import Operation
from gateway.security.sasl.scram_credential import ScramCredential, ScramHash

API_KEY: Final = 50


async def handle(context: RequestContext[TopicServices], request: Any) -> Any:
    """Return the mechanisms and iterations of the users that the request names, or of all."""
    module = response_module(API_KEY, context.api_version)
    if not context.may_cluster(Operation.DESCRIBE):
        refusal = ApiError(ErrorCode.cluster_authorization_failed, "Cluster authorization failed.")
        return build(
            module.DescribeUserScramCredentialsResponse,
            error_code=refusal.error_code,
            error_message=refusal.message,
            results=tuple(_result(module, "", refusal) for _ in request.users or ()),
        )
    found = describe_users(
        context.services.metadata_log.image.users, [user.name for user in request.users or ()]
    )
    return build(
        module.DescribeUserScramCredentialsResponse,
        error_code=ErrorCode.none,
        error_message="",
        results=tuple(_result(module, name, outcome) for name, outcome in found),
    )


def _result(module: Any, name: str, outcome: Mapping[ScramHash, ScramCredential] | ApiError) -> Any:
    if isinstance(outcome, ApiError):
        return build(
            module.DescribeUserScramCredentialsResult,
            user=name,
            error_code=outcome.error_code,
            error_message=outcome.message,
            credential_infos=(),
        )
    return build(
        module.DescribeUserScramCredentialsResult,
        user=name,
        error_code=ErrorCode.none,
        error_message="",
        credential_infos=tuple(
            build(module.CredentialInfo, mechanism=hashing.value, iterations=credential.iterations)
            for hashing, credential in sorted(outcome.items())
        ),
    )


API = Api(
    key=API_KEY,
    name="DescribeUserScramCredentials",
    min_version=0,
    max_version=0,
    reaches=api.topics,
    handle=handle,
    is_long=True,
)
