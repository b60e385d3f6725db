"""Checks altered key stores and trust stores of running listeners before a change of settings, and lets the
listeners use them after the change.

As in Kafka, naming the present file again reads the file again, although no value changes. Unlike Kafka, the gateway reads no file for a
client that may not alter the broker. Source: Kafka's ConfigAdminManager, DynamicBrokerConfig.reloadUpdatedFilesWithoutConfigChange.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kio.schema.errors import ErrorCode

from gateway.config.table import BY_NAME, listener_of, without_listener
from gateway.handlers.answering.api import RequestContext, TimeLimit
from gateway.metadata.configs import Alteration, alter_configs, proposed_values
from gateway.metadata.image import BROKER_RESOURCE
from gateway.metadata.users import ApiError
from gateway.runtime.services import NodeServices, TopicServices
from gateway.security.certificate_age import RenewableListener
from gateway.security.errors import StoreError


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
