"""DescribeClientQuotas (key 48, versions 0-1): list the quotas of users, client ids and addresses.

Entities and keys are listed in the order of Kafka's hash tables, which follows from the names and their
number.

Source: Kafka's KafkaApis.handleDescribeClientQuotas, ClientQuotasImage.describe.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.metadata.client_quotas import QuotaFilter, describe_client_quotas
from gateway.metadata.decision import ApiError
from gateway.protocol.messages import build, response_module
from gateway.runtime.services import TopicServices
from gateway.security.acls.codes import Operation

API_KEY: Final = 48


async def handle(context: RequestContext[TopicServices], request: Any) -> Any:
    """Return the quotas of the entities that match the filter."""
    module = response_module(API_KEY, context.api_version)
    found: Any = ApiError(ErrorCode.cluster_authorization_failed, "Cluster authorization failed.")
    if context.may_cluster(Operation.DESCRIBE_CONFIGS):
        filters = [QuotaFilter(part.entity_type, part.match_type, part.match) for part in request.components]
        found = describe_client_quotas(
            context.services.metadata_log.image, filters, strict=bool(request.strict)
        )
    if isinstance(found, ApiError):
        return build(
            module.DescribeClientQuotasResponse,
            error_code=found.error_code,
            error_message=found.message,
            entries=None,
        )
    return build(
        module.DescribeClientQuotasResponse,
        error_code=ErrorCode.none,
        error_message="",
        entries=tuple(
            build(
                module.EntryData,
                entity=tuple(
                    build(module.EntityData, entity_type=kind, entity_name=name) for kind, name in entity
                ),
                values=tuple(build(module.ValueData, key=key, value=value) for key, value in values.items()),
            )
            for entity, values in found
        ),
    )


API = Api(
    key=API_KEY,
    name="DescribeClientQuotas",
    min_version=0,
    max_version=1,
    reaches=api.topics,
    handle=handle,
    is_long=True,
)
