"""The configurations of topics, groups, client metrics, this broker and its loggers (four APIs).

DescribeConfigs (key 32, versions 1-4): describe configurations of topics, groups, client metrics, this
broker and its loggers. Rights: `DESCRIBE_CONFIGS` on the topic (its configurations); `DESCRIBE_CONFIGS` on
the group (its configurations); `DESCRIBE_CONFIGS` on the cluster (configurations of brokers and their
loggers).

As in Kafka, a resource type that Kafka does not know refuses the whole request. The right on a resource is
checked before the resource. Kafka lists the resources that it refuses for their rights last; Seqgate keeps
the order of the request. Source: Kafka's ConfigHelper.

AlterConfigs (key 33, versions 0-2): replace the configurations of topics, groups, client metrics and brokers.
Rights: `ALTER_CONFIGS` on the topic (its configurations); `ALTER_CONFIGS` on the group (its configurations);
`ALTER_CONFIGS` on the cluster (configurations of brokers, their loggers and client metrics).

A configuration that the request leaves out returns to its default. Kafka's settings that mean nothing here
are kept without effect, and so are a broker's names that nobody knows. Kafka never answers a request that
names a resource twice; Seqgate answers INVALID_REQUEST. The levels of loggers are not altered in this way.
Which values a configuration may have is the same as for IncrementalAlterConfigs, and stands in
`metadata/configs.py`. Source: Kafka's ConfigAdminManager, ConfigurationControlManager.legacyAlterConfigs,
ControllerApis.authorizeAlterResource.

IncrementalAlterConfigs (key 44, versions 0-1): set, delete, append to and subtract from single
configurations. Rights: `ALTER_CONFIGS` on the topic (its configurations); `ALTER_CONFIGS` on the group (its
configurations); `ALTER_CONFIGS` on the cluster (configurations of brokers, their loggers and client metrics).

A refused resource does not affect the other resources of the request. APPEND and SUBTRACT need a setting that
is a list. `metadata/configs.py` has the values that a configuration may have. Source: KIP-339, Kafka's
ConfigAdminManager, ConfigurationControlManager.incrementalAlterConfigs.

ListConfigResources (key 74, versions 0–1): list the resources that can be configured (KIP-1142). Rights:
`DESCRIBE_CONFIGS` on the cluster.

Version 0 lists only subscriptions of client metrics (it was ListClientMetricsResources). Topics, and the
registered brokers that have the client's listener, with their loggers, are always listed; a group and a
subscription are listed only when configurations are set on them. The right is checked before the types.
Source: Kafka's KafkaApis.handleListConfigResources.

`config_refusal` checks the right to describe or alter the configurations of a resource:

    resource                            right on            refusal
    topic                               the topic           TOPIC_AUTHORIZATION_FAILED
    group                               the group           GROUP_AUTHORIZATION_FAILED
    broker, its loggers, client metrics the cluster         CLUSTER_AUTHORIZATION_FAILED

Source: Kafka's ConfigHelper, ControllerApis.authorizeAlterResource.

`refuse_unusable` checks altered key stores and trust stores of running listeners before a change of settings,
and `take` lets the listeners use them after the change. As in Kafka, naming the present file again reads the
file again, although no value changes. Unlike Kafka, the gateway reads no file for a client that may not alter
the broker. Source: Kafka's ConfigAdminManager, DynamicBrokerConfig.reloadUpdatedFilesWithoutConfigChange.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from seqgate.gateway.config.config import Config
from seqgate.gateway.config.groups import BY_GROUP_NAME
from seqgate.gateway.config.setting import Setting, SettingType, render
from seqgate.gateway.config.table import BY_NAME, BY_TOPIC_NAME, listener_of, nearest, without_listener
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.changes import change_metadata_until_it_counts, log_change
from seqgate.gateway.handlers.answering.limits import TimeLimit, answer_each
from seqgate.gateway.handlers.answering.rights import cluster_refusal
from seqgate.gateway.metadata.configs import (
    Alteration,
    ConfigChange,
    ConfigOperation,
    broker_changes_error,
    broker_values_error,
    client_metrics_config_error,
    group_config_error,
    logger_error,
    topic_config_error,
)
from seqgate.gateway.metadata.decision import ApiError, Decision, told
from seqgate.gateway.metadata.described import (
    DescribedConfig,
    describe_all_brokers,
    describe_broker,
    describe_client_metrics,
    describe_group,
    describe_loggers,
    describe_topic,
)
from seqgate.gateway.metadata.image import (
    ALL_BROKERS,
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    MetadataImage,
    name_complaint,
)
from seqgate.gateway.metadata.producer_ids import node_id_of
from seqgate.gateway.metadata.records import ConfigRecord, MetadataRecord
from seqgate.gateway.runtime.loop import log_output
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.services import TopicServices
from seqgate.gateway.security.acls.access import CLUSTER_NAME, Operation, ResourceType
from seqgate.gateway.security.certificates import RenewableListener, StoreError

_REFUSALS: Final = {
    ResourceType.TOPIC: ApiError(ErrorCode.topic_authorization_failed, "Topic authorization failed."),
    ResourceType.GROUP: ApiError(ErrorCode.group_authorization_failed, "Group authorization failed."),
    ResourceType.CLUSTER: ApiError(ErrorCode.cluster_authorization_failed, "Cluster authorization failed."),
}
"""The error of a client that lacks the right, by the type of the resource that it needs the right on."""


class _Kind(NamedTuple):
    """A type of what can be configured. `name` is for log lines."""

    name: str
    guarded: ResourceType
    """The type of the resource on which a client needs the right."""
    nameless: str | None = None
    """Why a resource of this type needs a name to be described; None if it need not have one."""
    limit: tuple[str, str] | None = None
    """The setting that limits the number of configured resources, and what the setting limits."""


_KINDS: Final = {
    GROUP_RESOURCE: _Kind(
        "group",
        ResourceType.GROUP,
        "Group name must not be empty",
        ("seqgate.group.configs.max", "groups have configurations"),
    ),
    CLIENT_METRICS_RESOURCE: _Kind(
        "client metrics",
        ResourceType.CLUSTER,
        "Client metrics subscription name must not be empty",
        ("seqgate.telemetry.subscriptions.max", "subscriptions of client metrics exist"),
    ),
    BROKER_LOGGER_RESOURCE: _Kind("logger of broker", ResourceType.CLUSTER, "Broker id must not be empty"),
    BROKER_RESOURCE: _Kind("broker", ResourceType.CLUSTER),
    TOPIC_RESOURCE: _Kind("topic", ResourceType.TOPIC),
}
"""The types, in the order in which ListConfigResources lists their resources."""


def config_refusal(context: RequestContext[Any], operation: Operation, resource: Any) -> ApiError | None:
    """Return the error if the client lacks the right; None also for a type that is no configurable one."""
    if resource.resource_type not in _KINDS:
        return None
    guarded = _KINDS[resource.resource_type].guarded
    name = CLUSTER_NAME if guarded is ResourceType.CLUSTER else resource.resource_name
    return None if context.may(operation, guarded, name) else _REFUSALS[guarded]


async def handle_describe(context: RequestContext[TopicServices], request: Any) -> Any:
    unknown = [resource for resource in request.resources if resource.resource_type not in _KINDS]
    refusal = None
    if unknown:
        text = f"Unexpected resource type {unknown[0].resource_type} for resource {unknown[0].resource_name}"
        refusal = ApiError(ErrorCode.invalid_request, text)
    documented = getattr(request, "include_documentation", False)

    def answer(resource: Any) -> Any:
        denied = config_refusal(context, Operation.DESCRIBE_CONFIGS, resource)
        found = refusal or denied or _describe(context, resource)
        error = found if isinstance(found, ApiError) else None
        entries = () if isinstance(found, ApiError) else found
        return context.row(
            "DescribeConfigsResult",
            **told(error, ""),
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[
                _entry(entry, synonyms=request.include_synonyms, documented=documented) for entry in entries
            ],
        )

    return context.answer(results=await answer_each(request.resources, answer))


def _describe(context: RequestContext[TopicServices], resource: Any) -> Iterable[DescribedConfig] | ApiError:
    kind, name = resource.resource_type, resource.resource_name
    wanted = set(resource.configuration_keys) if resource.configuration_keys else None
    node, image = context.node, context.services.metadata_log.image
    complaint = _complaint(context, kind, name)
    if complaint is not None:
        return complaint
    if kind == TOPIC_RESOURCE:
        return describe_topic(node.config, image.topic_configs(name), wanted)
    if kind == GROUP_RESOURCE:
        return describe_group(node.config, image.configs(GROUP_RESOURCE, name), wanted)
    if kind == CLIENT_METRICS_RESOURCE:
        return describe_client_metrics(image.configs(CLIENT_METRICS_RESOURCE, name), wanted)
    if kind == BROKER_LOGGER_RESOURCE:
        return describe_loggers(log_output.levels(), wanted)
    if not name:
        return describe_all_brokers(image.configs(BROKER_RESOURCE, ALL_BROKERS), wanted)
    return describe_broker(node.config, wanted)


def _complaint(context: RequestContext[TopicServices], kind: int, name: str) -> ApiError | None:
    """Return why there is no resource of this name to describe."""
    if kind == TOPIC_RESOURCE:
        complaint = name_complaint(name)
        if complaint:
            return ApiError(ErrorCode.invalid_topic_exception, complaint)
        is_known = name in context.services.metadata_log.image.topics_by_name
        return None if is_known else ApiError(ErrorCode.unknown_topic_or_partition, "")
    text, node_id = None, context.node.node_id
    if not name:
        text = _KINDS[kind].nameless
    elif kind in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE):
        asked = node_id_of(name)
        if asked is None:
            text = f"Broker id must be an integer, but it is: {name}"
        elif asked != node_id:
            or_empty = " or empty string," if kind == BROKER_RESOURCE else ""
            text = f"Unexpected broker id, expected {node_id}{or_empty} but received {name}"
    return None if text is None else ApiError(ErrorCode.invalid_request, text)


def _entry(entry: DescribedConfig, *, synonyms: bool, documented: bool) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "read_only": entry.read_only,
        "config_source": entry.source,
        "is_sensitive": entry.is_sensitive,
        "synonyms": [
            {"name": synonym.name, "value": synonym.value, "source": synonym.source}
            for synonym in (entry.synonyms if synonyms else ())
        ],
        "config_type": entry.type,
        # Kafka sends the empty documentation of a logger's level whether or not the request asks for
        # documentation
        "documentation": entry.documentation if documented or not entry.documentation else None,
    }


DESCRIBE_CONFIGS_API = Api(
    key=32, versions=(1, 4), reaches=api.topics, handle=handle_describe, may_be_given_up=True
)


_NO_LOGGERS: Final = ApiError(ErrorCode.invalid_request, f"Unknown resource type {BROKER_LOGGER_RESOURCE}")
"""The refusal of AlterConfigs for loggers, as in Kafka."""
_REPEATED: Final = ApiError(ErrorCode.invalid_request, "Each resource must appear at most once.")


async def handle_alter(context: RequestContext[TopicServices], request: Any) -> Any:
    """Alter each resource, or only check the changes when `validate_only` is set. AlterConfigs returns the
    configurations that it does not name to their defaults.
    """
    replaces = context.api_key == ALTER_CONFIGS_API.key
    refusals = await _refusals(context, request.resources, replaces=replaces)
    alterations: Sequence[Alteration] = [found for found in refusals if isinstance(found, Alteration)]

    def whole(image: MetadataImage, alteration: Alteration) -> Alteration:
        return replacing(image, alteration) if replaces else alteration

    alterations = await refuse_unusable(context, alterations, whole)

    def note(errors: Sequence[ApiError | None]) -> None:
        altered = [alteration for alteration, error in zip(alterations, errors, strict=True) if not error]
        if not request.validate_only:
            texts = [_described(alteration, replaces=replaces) for alteration in altered]
            # first, because a level may silence this line
            log_change(context, "altered the configuration of", texts)
            _set_levels(altered)
            take(context, altered)

    outcome = await change_metadata_until_it_counts(
        context,
        lambda image: alter_configs(
            image,
            [whole(image, alteration) for alteration in alterations],
            config=context.node.config,
            node_id=context.node.node_id,
            loggers=log_output.levels(),
            validate_only=request.validate_only,
        ),
        note=note,
    )
    errors = repeat(outcome) if isinstance(outcome, ApiError) else iter(outcome)
    rows = []
    async for resource, found in in_slices(zip(request.resources, refusals, strict=True)):
        error = found if isinstance(found, ApiError) else next(errors)
        place = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        rows.append(context.row("AlterConfigsResourceResponse", **told(error), **place))
    return context.answer(responses=tuple(rows))


async def _refusals(
    context: RequestContext[TopicServices], resources: Sequence[Any], *, replaces: bool
) -> list[Alteration | ApiError]:
    """Return the alteration of each resource, or its error where that does not depend on the metadata. The
    decision holds up other requests, so it gets as few resources as possible.
    """
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    found: list[Alteration | ApiError] = []
    async for resource in in_slices(resources):
        resource_type, name = resource.resource_type, resource.resource_name
        if times[resource_type, name] > 1:
            found.append(_REPEATED)
            continue
        changes = [
            ConfigChange(each.name, each.value, getattr(each, "config_operation", ConfigOperation.SET))
            async for each in in_slices(resource.configs)
        ]
        if replaces and resource_type == BROKER_LOGGER_RESOURCE:
            denied: ApiError | None = _NO_LOGGERS
        else:
            denied = config_refusal(context, Operation.ALTER_CONFIGS, resource)
        alteration = Alteration(resource_type, name, changes, denied=denied)
        error = _request_error(alteration, context.node.config, context.node.node_id)
        found.append(alteration if error is None else error)
    return found


def replacing(image: MetadataImage, alteration: Alteration) -> Alteration:
    """Return an alteration that also deletes each configuration of the resource that it does not name."""
    named = {change.name for change in alteration.changes}
    others = [
        ConfigChange(name, None, ConfigOperation.DELETE)
        for name in image.configs(alteration.resource_type, alteration.resource_name)
        if name not in named
    ]
    return replace(alteration, changes=[*alteration.changes, *others])


# The decision about altered resources. A refused resource does not affect the others of the request.


def alter_configs(
    image: MetadataImage,
    alterations: Sequence[Alteration],
    *,
    config: Config,
    node_id: int,
    loggers: Collection[str] = (),
    validate_only: bool = False,
) -> Decision[list[ApiError | None]]:
    """Alter resources; the answer has an error for each in order, None for a resource that was altered.
    Changes of loggers yield no records; `loggers` names the existing ones, and the caller sets their levels.
    """
    times = Counter((alteration.resource_type, alteration.resource_name) for alteration in alterations)
    errors: list[ApiError | None] = []
    records: list[MetadataRecord] = []
    added: Counter[int] = Counter()
    """The resources without configurations, of each type with a limit, that the request configures."""
    for alteration in alterations:
        if times[alteration.resource_type, alteration.resource_name] > 1:
            errors.append(_REPEATED)
            continue
        outcome: list[ConfigRecord] | ApiError
        if alteration.resource_type == BROKER_LOGGER_RESOURCE:
            outcome = _loggers_error(alteration, config, node_id, loggers) or []
        else:
            outcome = _records_or_error(image, alteration, config, node_id)
        resource_type = alteration.resource_type
        limit = _KINDS[resource_type].limit if outcome and not isinstance(outcome, ApiError) else None
        if limit is not None and alteration.resource_name not in image.configured(resource_type):
            setting, what = limit
            most = config.int(setting)
            if len(image.configured(resource_type)) + added[resource_type] >= most:
                text = f"{most} {what}, as many as {setting} allows."
                outcome = ApiError(ErrorCode.policy_violation, text)
            added[resource_type] += 1
        if isinstance(outcome, ApiError):
            errors.append(outcome)
        else:
            errors.append(None)
            records.extend(outcome)
    return Decision(() if validate_only else records, errors)


def _records_or_error(
    image: MetadataImage, alteration: Alteration, config: Config, node_id: int
) -> list[ConfigRecord] | ApiError:
    error = _request_error(alteration, config, node_id)
    if error:
        return error
    proposed = proposed_values(image, alteration)
    if isinstance(proposed, ApiError):
        return proposed
    error = _values_error(image, alteration, config, proposed)
    if error:
        return error
    current = image.configs(alteration.resource_type, alteration.resource_name)
    # settings without effect, and a broker's names that nobody knows, are kept as any others
    return [
        ConfigRecord(alteration.resource_type, alteration.resource_name, name, value)
        for name, value in proposed.items()
        if value != current.get(name)
    ]


def proposed_values(image: MetadataImage, alteration: Alteration) -> dict[str, str | None] | ApiError:
    """Return the values of a resource after the alteration; None for a value that is removed."""
    current = image.configs(alteration.resource_type, alteration.resource_name)
    proposed: dict[str, str | None] = dict(current)
    for change in alteration.changes:
        value = _new_value(alteration.resource_type, change, current.get(change.name))
        if isinstance(value, ApiError):
            return value
        proposed[change.name] = value
    return proposed


def _loggers_error(
    alteration: Alteration, config: Config, node_id: int, loggers: Collection[str]
) -> ApiError | None:
    return (
        _request_error(alteration, config, node_id)
        or logger_error(alteration.resource_name, node_id, alteration.changes, loggers)
        or _hiding_error(alteration)
    )


def _hiding_error(alteration: Alteration) -> ApiError | None:
    for change in alteration.changes:
        if change.value is not None and log_output.hides_changes(change.name, change.value):
            text = f"{change.name} records what users changed: its level may be INFO, DEBUG or TRACE"
            return ApiError(ErrorCode.invalid_config, f"{text}, not {change.value}")
    return None


def _request_error(alteration: Alteration, config: Config, node_id: int) -> ApiError | None:
    """Return the error for a request that a broker refuses before checking the values; None if it is fine."""
    error = _form_error(alteration)
    if error:
        return error
    if alteration.resource_type == BROKER_RESOURCE:
        return _broker_error(alteration, config, node_id) or alteration.denied
    if alteration.resource_type not in _KINDS:
        return ApiError(ErrorCode.invalid_request, f"Unknown resource type {alteration.resource_type}")
    return alteration.denied


def _form_error(alteration: Alteration) -> ApiError | None:
    names = [change.name for change in alteration.changes]
    if len(set(names)) < len(names):
        return ApiError(ErrorCode.invalid_request, "Error due to duplicate config keys")
    missing = [
        change.name
        for change in alteration.changes
        if change.value is None and change.operation != ConfigOperation.DELETE
    ]
    if missing:
        return ApiError(ErrorCode.invalid_request, f"Null value not supported for : {', '.join(missing)}")
    return None


def _broker_error(alteration: Alteration, config: Config, node_id: int) -> ApiError | None:
    name = alteration.resource_name
    wanted = node_id_of(name)
    if name and wanted is None:
        return ApiError(ErrorCode.invalid_request, f"Node id must be an integer, but it is: {name}")
    if name and wanted != node_id:
        return ApiError(
            ErrorCode.invalid_request, f"Unexpected broker id, expected {node_id}, but received {name}"
        )
    return broker_changes_error(alteration, config)


def _new_value(resource_type: int, change: ConfigChange, current: str | None) -> str | ApiError | None:
    if change.operation == ConfigOperation.SET:
        return change.value
    if change.operation == ConfigOperation.DELETE:
        return None
    if change.operation not in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
        return ApiError(ErrorCode.invalid_request, f"Unknown operations type {change.operation}")
    operation = ConfigOperation(change.operation)
    setting = _setting(resource_type, change.name)
    if setting is None or setting.type is not SettingType.LIST:
        return ApiError(
            ErrorCode.invalid_config,
            f"Can't {operation.name} to key {change.name} because its type is not LIST.",
        )
    text = current if current is not None else render(setting.default) or ""
    items = [item for item in text.split(",") if item]
    value = change.value or ""
    # Java's split drops empty items at the end: only an empty value is one empty item, commas alone are none.
    for item in value.rstrip(",").split(",") if value.strip(",") or not value else ():
        if operation is ConfigOperation.APPEND and item not in items:
            items.append(item)
        elif operation is ConfigOperation.SUBTRACT and item in items:
            items.remove(item)
    return ",".join(items)


def _setting(resource_type: int, name: str) -> Setting | None:
    """Return the setting of this name. As in Kafka, client metrics have no types: lists are set whole."""
    if resource_type == CLIENT_METRICS_RESOURCE:
        return None
    if resource_type == GROUP_RESOURCE:
        entry = BY_GROUP_NAME.get(name)
        return entry.setting if entry else None
    if resource_type == TOPIC_RESOURCE:
        return BY_TOPIC_NAME.get(name)
    from seqgate.gateway.metadata.broker_configs import broker_setting  # noqa: PLC0415 - it has a large table

    return broker_setting(name)


def _values_error(
    image: MetadataImage, alteration: Alteration, config: Config, values: Mapping[str, str | None]
) -> ApiError | None:
    present = {name: value for name, value in values.items() if value is not None}
    name = alteration.resource_name
    if alteration.resource_type == GROUP_RESOURCE:
        return group_config_error(config, name, present)
    if alteration.resource_type == CLIENT_METRICS_RESOURCE:
        return client_metrics_config_error(name, present)
    if alteration.resource_type == BROKER_RESOURCE:
        return broker_values_error(config, present, of_all_brokers=not name)
    if not name:
        return ApiError(ErrorCode.invalid_request, "Default topic resources are not allowed.")
    complaint = name_complaint(name)
    if complaint:
        return ApiError(ErrorCode.invalid_topic_exception, complaint)
    error = topic_config_error(config, present)
    if error:
        return error
    if name not in image.topics_by_name:
        return ApiError(ErrorCode.unknown_topic_or_partition, f"The topic '{name}' does not exist.")
    return None


# The lines of the log.


def _described(alteration: Alteration, *, replaces: bool) -> str:
    """Return a resource and its changes for a log line, without the values of secrets and unknown names."""
    kind = _KINDS[alteration.resource_type].name
    changes = [_change(alteration.resource_type, change) for change in alteration.changes]
    if replaces:
        changes.append("all others to their defaults")
    hint = _hint(alteration) if alteration.resource_type == BROKER_RESOURCE else ""
    return f"{kind} {alteration.resource_name or 'default'} ({', '.join(changes)}{hint})"


def _change(resource_type: int, change: ConfigChange) -> str:
    if change.operation == ConfigOperation.DELETE:
        return f"{change.name} to its default"
    value, remark = change.value, ""
    if resource_type in {TOPIC_RESOURCE, BROKER_RESOURCE}:
        setting = _setting(resource_type, change.name)
        if setting is None or setting.sensitive:
            value = "[hidden]"
        if setting is None or setting.without_effect:
            remark = f" ({'unknown, ' if setting is None else ''}kept without effect)"
    sign = {ConfigOperation.APPEND: "+=", ConfigOperation.SUBTRACT: "-="}.get(
        ConfigOperation(change.operation), "="
    )
    return f"{change.name}{sign}{value}{remark}"


def _hint(alteration: Alteration) -> str:
    """Return a hint for the first unknown name that is set; others get none: a look-up takes 20 ms."""
    for change in alteration.changes:
        if change.operation != ConfigOperation.DELETE and _setting(BROKER_RESOURCE, change.name) is None:
            near = nearest(change.name, BY_NAME)
            return f"; the valid name nearest to {change.name} is {near}" if near else ""
    return ""


def _set_levels(alterations: Iterable[Alteration]) -> None:
    for alteration in alterations:
        if alteration.resource_type == BROKER_LOGGER_RESOURCE:
            for change in alteration.changes:
                log_output.set_level(
                    change.name, change.value if change.operation == ConfigOperation.SET else None
                )


ALTER_CONFIGS_API = Api(key=33, versions=(0, 2), reaches=api.topics, handle=handle_alter)
INCREMENTAL_ALTER_CONFIGS_API = Api(key=44, versions=(0, 1), reaches=api.topics, handle=handle_alter)


async def refuse_unusable(
    context: RequestContext[TopicServices],
    alterations: Sequence[Alteration],
    whole: Callable[[MetadataImage, Alteration], Alteration],
) -> Sequence[Alteration]:
    """Return the alterations, and mark those as denied that change a store which their listener can't use.
    `whole` returns all changes of an alteration.
    """
    checked = list(alterations)
    async for index, alteration in in_slices(enumerate(alterations)):
        refusal = await _refusal_of_change(context, whole(context.services.metadata_log.image, alteration))
        if refusal is not None:
            checked[index] = replace(alteration, denied=refusal)
    return checked


def take(context: RequestContext[TopicServices], alterations: Sequence[Alteration]) -> None:
    """Let the listeners use the stores of these alterations, which are durable."""
    for alteration in alterations:
        for listener in _listeners(context, alteration).values():
            listener.take_checked()


async def _refusal_of_change(
    context: RequestContext[TopicServices], alteration: Alteration
) -> ApiError | None:
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
    node = context.node
    image = context.services.metadata_log.image
    decision = alter_configs(
        image, [alteration], config=node.config, node_id=node.node_id, validate_only=True
    )
    return decision.answer[0] is not None


def _listeners(
    context: RequestContext[TopicServices], alteration: Alteration
) -> dict[str, RenewableListener]:
    """Return the running listeners whose stores the alteration names, by their names."""
    if alteration.resource_type != BROKER_RESOURCE:
        return {}
    found: dict[str, RenewableListener] = {}
    for name in sorted({change.name for change in alteration.changes}):
        general = BY_NAME.get(without_listener(name))
        listener_name = listener_of(name)
        if listener_name is None or general is None or not general.dynamic_on_listener:
            continue
        listener = context.node.tls_listeners.get(listener_name)
        if listener is not None:
            found[listener_name] = listener
    return found


def _names(context: RequestContext[TopicServices], resource_type: int) -> Collection[str]:
    """Return the names of all topics or brokers, or of the resources of another type that have
    configurations.
    """
    image = context.services.metadata_log.image
    if resource_type == TOPIC_RESOURCE:
        return image.topics_by_name
    if resource_type in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE):
        return [str(broker.node_id) for broker in context.node.brokers.on(context.listener_name)]
    return image.configured(resource_type)


async def handle_list(context: RequestContext[TopicServices], request: Any) -> Any:
    """List the resources of the types in the request, or of all types when it names none."""
    denied = cluster_refusal(context, Operation.DESCRIBE_CONFIGS)
    if denied is not None:
        return context.answer(error_code=denied.error_code, config_resources=())
    asked = set(getattr(request, "resource_types", (CLIENT_METRICS_RESOURCE,))) or set(_KINDS)
    if asked - set(_KINDS):
        return context.answer(error_code=ErrorCode.unsupported_version, config_resources=())
    resources = [
        {"resource_name": name, "resource_type": resource_type}
        for resource_type in _KINDS
        if resource_type in asked
        for name in _names(context, resource_type)
    ]
    return context.answer(error_code=ErrorCode.none, config_resources=resources)


LIST_CONFIG_RESOURCES_API = Api(key=74, versions=(0, 1), reaches=api.topics, handle=handle_list)
