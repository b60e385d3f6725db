"""AlterConfigs (key 33, versions 0-2): replace the configurations of topics, groups, client metrics and
brokers.

A configuration that the request leaves out returns to its default. Kafka's settings that mean nothing here
are kept without effect, and so are a broker's names that nobody knows. Kafka never answers a request that
names a resource twice; Seqgate answers INVALID_REQUEST. Source: Kafka's ConfigAdminManager,
ConfigurationControlManager.legacyAlterConfigs, ControllerApis.authorizeAlterResource.

IncrementalAlterConfigs (key 44, versions 0-1): set, delete, append to and subtract from single
configurations.

Source: KIP-339, Kafka's ConfigAdminManager, ConfigurationControlManager.incrementalAlterConfigs.

Checks altered key stores and trust stores of running listeners before a change of settings, and lets the
listeners use them after the change.

As in Kafka, naming the present file again reads the file again, although no value changes. Unlike Kafka, the
gateway reads no file for a client that may not alter the broker. Source: Kafka's ConfigAdminManager,
DynamicBrokerConfig.reloadUpdatedFilesWithoutConfigChange.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.config.setting import Setting
from seqgate.gateway.config.table import BY_NAME, BY_TOPIC_NAME, listener_of, nearest, without_listener
from seqgate.gateway.handlers.admin.config_rights import alteration_refusal
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext, TimeLimit
from seqgate.gateway.handlers.answering.changes import change_metadata, log_change
from seqgate.gateway.metadata.configs import (
    Alteration,
    ConfigChange,
    Operation,
    alter_configs,
    proposed_values,
)
from seqgate.gateway.metadata.decision import ApiError
from seqgate.gateway.metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from seqgate.gateway.protocol.messages import build, response_module, response_type
from seqgate.gateway.runtime.loop import log_output
from seqgate.gateway.runtime.services import NodeServices, TopicServices
from seqgate.gateway.security.certificates import RenewableListener, StoreError

ALTER_CONFIGS_API_KEY: Final = 33
_KINDS: Final = {
    TOPIC_RESOURCE: "topic",
    BROKER_RESOURCE: "broker",
    BROKER_LOGGER_RESOURCE: "logger of broker",
    CLIENT_METRICS_RESOURCE: "client metrics",
    GROUP_RESOURCE: "group",
}


async def handle_alter_configs(context: RequestContext[TopicServices], request: Any) -> Any:
    """Replace the configurations of each resource, or only check them when `validate_only` is set."""
    alterations = [
        Alteration(
            resource.resource_type,
            resource.resource_name,
            [ConfigChange(config.name, config.value) for config in resource.configs],
            replace=True,
            denied=alteration_refusal(context, resource.resource_type, resource.resource_name),
        )
        for resource in request.resources
    ]
    return await answer_alterations(context, request, ALTER_CONFIGS_API_KEY, alterations)


async def answer_alterations(
    context: RequestContext[TopicServices], request: Any, api_key: int, alterations: Sequence[Alteration]
) -> Any:
    """Alter the resources and answer each in the response of `api_key`; change nothing when `validate_only`
    is set.
    """
    errors = await _alter(context, alterations, validate_only=request.validate_only)
    module = response_module(api_key, context.api_version)
    return build(
        response_type(api_key, context.api_version),
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


async def _alter(
    context: RequestContext[TopicServices], alterations: Sequence[Alteration], *, validate_only: bool
) -> Sequence[ApiError | None]:
    """Alter the resources; return an error for each in order, None for a resource that was altered."""
    alterations = await refuse_unusable(context, alterations)

    def note(errors: Sequence[ApiError | None]) -> None:
        altered = [alteration for alteration, error in zip(alterations, errors, strict=True) if not error]
        if not validate_only:
            _set_levels(altered)
            take(context, altered)
            log_change(context, "altered the configuration of", list(map(_described, altered)))

    errors = await change_metadata(
        context,
        lambda image: alter_configs(
            image,
            alterations,
            config=context.node.config,
            node_id=context.node.node_id,
            loggers=log_output.levels(),
            validate_only=validate_only,
        ),
        note=note,
    )
    return [errors] * len(alterations) if isinstance(errors, ApiError) else errors


def _described(alteration: Alteration) -> str:
    """Return a resource and its changes for a log line, without the values of secrets and unknown names."""
    kind = _KINDS.get(alteration.resource_type, f"resource {alteration.resource_type}")
    changes = [_change(alteration.resource_type, change) for change in alteration.changes]
    if alteration.replace:
        changes.append("all others to their defaults")
    hint = _hint(alteration) if alteration.resource_type == BROKER_RESOURCE else ""
    return f"{kind} {alteration.resource_name or 'default'} ({', '.join(changes)}{hint})"


def _change(resource_type: int, change: ConfigChange) -> str:
    if change.operation == Operation.DELETE:
        return f"{change.name} to its default"
    value, remark = change.value, ""
    if resource_type in {TOPIC_RESOURCE, BROKER_RESOURCE}:
        setting = _setting(resource_type, change.name)
        if setting is None or setting.sensitive:
            value = "[hidden]"
        if setting is None or setting.without_effect:
            remark = f" ({'unknown, ' if setting is None else ''}kept without effect)"
    sign = {Operation.APPEND: "+=", Operation.SUBTRACT: "-="}.get(Operation(change.operation), "=")
    return f"{change.name}{sign}{value}{remark}"


def _setting(resource_type: int, name: str) -> Setting | None:
    if resource_type == TOPIC_RESOURCE:
        return BY_TOPIC_NAME.get(name)
    from seqgate.gateway.metadata.broker_configs import broker_setting  # noqa: PLC0415 - it has a large table

    return broker_setting(name)


def _hint(alteration: Alteration) -> str:
    """Return what the first unknown name that is set may stand for.

    The look-up takes 20 ms. So no other name has a hint.
    """
    for change in alteration.changes:
        if change.operation != Operation.DELETE and _setting(BROKER_RESOURCE, change.name) is None:
            near = nearest(change.name, BY_NAME)
            return f"; the valid name nearest to {change.name} is {near}" if near else ""
    return ""


def _set_levels(alterations: Iterable[Alteration]) -> None:
    for alteration in alterations:
        if alteration.resource_type == BROKER_LOGGER_RESOURCE:
            for change in alteration.changes:
                log_output.set_level(change.name, change.value if change.operation == Operation.SET else None)


INCREMENTAL_ALTER_CONFIGS_API_KEY: Final = 44


async def handle_incremental_alter_configs(context: RequestContext[TopicServices], request: Any) -> Any:
    """Carry out the operations on each resource, or only check them when `validate_only` is set."""
    alterations = [
        Alteration(
            resource.resource_type,
            resource.resource_name,
            [ConfigChange(config.name, config.value, config.config_operation) for config in resource.configs],
            denied=alteration_refusal(context, resource.resource_type, resource.resource_name),
        )
        for resource in request.resources
    ]
    return await answer_alterations(context, request, INCREMENTAL_ALTER_CONFIGS_API_KEY, alterations)


INCREMENTAL_ALTER_CONFIGS_API = Api(
    INCREMENTAL_ALTER_CONFIGS_API_KEY,
    "IncrementalAlterConfigs",
    0,
    1,
    api.topics,
    handle=handle_incremental_alter_configs,
)


async def refuse_unusable(
    context: RequestContext[TopicServices], alterations: Sequence[Alteration]
) -> Sequence[Alteration]:
    """Return the alterations, and mark those as denied that name a store which their listener can't use."""
    checked = list(alterations)
    for index, alteration in enumerate(alterations):
        refusal = await _refusal(context, alteration)
        if refusal is not None:
            checked[index] = replace(alteration, denied=refusal)
    return checked


def take(context: RequestContext[TopicServices], alterations: Sequence[Alteration]) -> None:
    """Let the listeners use the stores of these alterations, which are durable."""
    for alteration in alterations:
        for listener in _listeners(context, alteration).values():
            listener.take_checked()


async def _refusal(context: RequestContext[TopicServices], alteration: Alteration) -> ApiError | None:
    listeners = _listeners(context, alteration)
    if not listeners or _is_refused_anyway(context, alteration):
        return None
    image = context.services.metadata_log.image
    values = proposed_values(image, alteration)
    if isinstance(values, ApiError):
        return values
    proposed = context.node.config.with_dynamic(
        {name: value for name, value in values.items() if value is not None}
    )
    limit = TimeLimit(context)
    for name, listener in listeners.items():
        try:
            await limit.run(listener.check(proposed), f"listener {name}")
        except StoreError as error:
            text = f"The stores of listener {name} can't be altered: {error}"
            return ApiError(ErrorCode.invalid_request, text)
        except TimeoutError:
            text = f"The stores of listener {name} can't be read in time; nothing has changed."
            return ApiError(ErrorCode.request_timed_out, text)
    return None


def _is_refused_anyway(context: RequestContext[TopicServices], alteration: Alteration) -> bool:
    """Return whether the alteration is refused for another reason, so that its stores need not be read."""
    node: NodeServices = context.node
    decision = alter_configs(
        context.services.metadata_log.image,
        [alteration],
        config=node.config,
        node_id=node.node_id,
        validate_only=True,
    )
    return decision.answer[0] is not None


def _listeners(
    context: RequestContext[TopicServices], alteration: Alteration
) -> dict[str, RenewableListener]:
    """Return the running listeners whose stores the alteration names, by their names."""
    if alteration.resource_type != BROKER_RESOURCE:
        return {}
    names = {change.name for change in alteration.changes}
    if alteration.replace:
        names.update(context.services.metadata_log.image.configs(BROKER_RESOURCE, alteration.resource_name))
    found: dict[str, RenewableListener] = {}
    for name in sorted(names):
        general = BY_NAME.get(without_listener(name))
        listener_name = listener_of(name)
        if listener_name is None or general is None or not general.dynamic_on_listener:
            continue
        listener = context.node.tls_listeners.get(listener_name)
        if listener is not None:
            found[listener_name] = listener
    return found


ALTER_CONFIGS_API = Api(ALTER_CONFIGS_API_KEY, "AlterConfigs", 0, 2, api.topics, handle=handle_alter_configs)
