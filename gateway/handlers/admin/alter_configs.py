"""AlterConfigs (key 33, versions 0-2): replace the configurations of topics, groups and brokers.

What is not named goes back to its default. Source: Kafka's ConfigAdminManager,
ConfigurationControlManager.legacyAlterConfigs. Kafka never answers a request that names a resource twice; here it gets
INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from gateway.handlers.admin.metadata_change import change_metadata
from gateway.handlers.answering.api import Api, RequestContext
from gateway.metadata.configs import Alteration, ConfigChange, Operation, alter_configs
from gateway.metadata.decision import ApiError
from gateway.metadata.image import BROKER_LOGGER_RESOURCE
from gateway.protocol.messages import build, response_module
from gateway.runtime.loop import loggers


async def handle(context: RequestContext, request: Any) -> Any:
    """Replace the configurations, or only check them when `validate_only` is set."""
    alterations = [
        Alteration(
            resource.resource_type,
            resource.resource_name,
            [ConfigChange(config.name, config.value) for config in resource.configs],
            replace=True,
        )
        for resource in request.resources
    ]
    errors = await alter(context, alterations, validate_only=request.validate_only)
    module = response_module(33, context.api_version)
    return build(
        module.AlterConfigsResponse,
        responses=tuple(
            build(
                module.AlterConfigsResourceResponse,
                error_code=error.error_code if error else ErrorCode.none,
                error_message=error.message if error else None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, error in zip(request.resources, errors, strict=True)
        ),
    )


async def alter(
    context: RequestContext, alterations: Sequence[Alteration], *, validate_only: bool
) -> Sequence[ApiError | None]:
    """Alter the resources; the error of each in their order, None where it was carried out."""
    errors = await change_metadata(
        context,
        lambda image: alter_configs(
            image,
            alterations,
            config=context.services.config,
            node_id=context.services.node_id,
            loggers=loggers.levels(),
            validate_only=validate_only,
        ),
    )
    if isinstance(errors, ApiError):
        return [errors] * len(alterations)
    if not validate_only:
        _set_levels(alteration for alteration, error in zip(alterations, errors, strict=True) if not error)
    return errors


def _set_levels(alterations: Iterable[Alteration]) -> None:
    for alteration in alterations:
        if alteration.resource_type == BROKER_LOGGER_RESOURCE:
            for change in alteration.changes:
                loggers.set_level(change.name, change.value if change.operation == Operation.SET else None)


API = Api(key=33, name="AlterConfigs", min_version=0, max_version=2, handle=handle)
