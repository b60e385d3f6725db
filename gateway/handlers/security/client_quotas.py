"""AlterClientQuotas (key 49, versions 0-1): set and remove quotas of users, client ids and addresses. Rights:
`ALTER_CONFIGS` on the cluster.

A change counts at once, on open connections, too. `alter_client_quotas` in `metadata/client_quotas.py`
decides. Source: Kafka's ControllerApis.handleAlterClientQuotas, ClientQuotaControlManager.

DescribeClientQuotas (key 48, versions 0-1): list the quotas of users, client ids and addresses. Rights:
`DESCRIBE_CONFIGS` on the cluster.

Entities and keys are listed in the order of Kafka's hash tables, which follows from the names and their
number. `describe_client_quotas` in `metadata/client_quotas.py` decides. Source: Kafka's
KafkaApis.handleDescribeClientQuotas, ClientQuotasImage.describe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.changes import change_metadata, log_change
from seqgate.gateway.metadata.client_quotas import (
    QuotaAlteration,
    QuotaChange,
    QuotaFilter,
    alter_client_quotas,
    describe_client_quotas,
    entity_of,
    parts_as_answered,
    shown,
)
from seqgate.gateway.metadata.decision import ApiError, told
from seqgate.gateway.metadata.records import QuotaEntity
from seqgate.gateway.runtime.services import TopicServices
from seqgate.gateway.security.acls.access import Operation


async def handle_alter_client_quotas(context: RequestContext[TopicServices], request: Any) -> Any:
    """Alter the quotas of each entity, or only check the changes when `validate_only` is set."""
    alterations = [
        QuotaAlteration(
            entity_of((part.entity_type, part.entity_name) for part in entry.entity),
            [QuotaChange(change.key, None if change.remove else change.value) for change in entry.ops],
        )
        for entry in request.entries
    ]
    outcomes = await _alter(context, alterations, validate_only=request.validate_only)
    if isinstance(outcomes, ApiError):
        rows = [
            _row([(part.entity_type, part.entity_name) for part in entry.entity], outcomes)
            for entry in request.entries
        ]
    else:
        rows = [_row(parts_as_answered(entity), error) for entity, error in outcomes.items()]
    return context.answer(entries=rows)


def _row(parts: Iterable[tuple[str, str | None]], error: ApiError | None) -> dict[str, Any]:
    return {**told(error), "entity": _entity(parts)}


def _entity(parts: Iterable[tuple[str, str | None]]) -> list[dict[str, str | None]]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in parts]


async def _alter(
    context: RequestContext[TopicServices], alterations: Sequence[QuotaAlteration], *, validate_only: bool
) -> Mapping[QuotaEntity, ApiError | None] | ApiError:
    if not context.may_cluster(Operation.ALTER_CONFIGS):
        return ApiError(ErrorCode.cluster_authorization_failed, "Cluster authorization failed.")

    def note(outcomes: Mapping[QuotaEntity, ApiError | None]) -> None:
        altered = [alteration for alteration in alterations if not outcomes[alteration.entity]]
        if not validate_only:
            log_change(context, "altered the quotas of", list(map(_described, altered)))

    return await change_metadata(
        context,
        lambda image: alter_client_quotas(
            image,
            alterations,
            max_entities=context.node.config.int("seqgate.client.quotas.max"),
            validate_only=validate_only,
        ),
        note=note,
    )


def _described(alteration: QuotaAlteration) -> str:
    changes = [
        f"{key} removed" if value is None else f"{key}={value:.15g}" for key, value in alteration.changes
    ]
    return f"{shown(alteration.entity)} ({', '.join(changes)})"


async def handle_describe_client_quotas(context: RequestContext[TopicServices], request: Any) -> Any:
    """Return the quotas of the entities that match the filter."""
    found: Any = ApiError(ErrorCode.cluster_authorization_failed, "Cluster authorization failed.")
    if context.may_cluster(Operation.DESCRIBE_CONFIGS):
        filters = [QuotaFilter(part.entity_type, part.match_type, part.match) for part in request.components]
        found = describe_client_quotas(
            context.services.metadata_log.image, filters, strict=bool(request.strict)
        )
    error, entries = ApiError(ErrorCode.none, ""), None
    if isinstance(found, ApiError):
        error = found
    else:
        entries = [
            {
                "entity": _entity(entity),
                "values": [{"key": key, "value": value} for key, value in values.items()],
            }
            for entity, values in found
        ]
    return context.answer(**told(error), entries=entries)


DESCRIBE_CLIENT_QUOTAS_API = Api(48, 0, 1, api.topics, handle=handle_describe_client_quotas, is_long=True)
ALTER_CLIENT_QUOTAS_API = Api(49, 0, 1, api.topics, handle=handle_alter_client_quotas)
