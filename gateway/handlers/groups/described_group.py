"""A group of the consumer protocol, or a share group, as the two Describe APIs tell it: they differ in their members."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode

from gateway.handlers.answering.authorized_operations import GROUP_OPERATIONS, NOT_ASKED
from gateway.protocol.messages import build
from gateway.runtime.coordinators.shards import Unavailable

G = TypeVar("G")


def find_or_absent(module: Any, group_id: str, find: Callable[[str], G | None]) -> tuple[G | None, Any]:
    """The group, or what is told instead of it."""
    if not group_id:
        return None, _absent(module, group_id, ErrorCode.invalid_group_id)
    try:
        group = find(group_id)
    except Unavailable as error:
        return None, _absent(module, group_id, error.error_code)
    if group is None:
        message = f"Group {group_id} not found."
        return None, _absent(module, group_id, ErrorCode.group_id_not_found, message)
    return group, None


def described(
    module: Any,
    group_id: str,
    *,
    state: str,
    epochs: tuple[int, int],
    assignor_name: str,
    members: tuple[Any, ...],
    operations_asked: bool,
) -> Any:
    """A group that is there; `epochs` are those of the group and of its assignment."""
    return build(
        module.DescribedGroup,
        error_code=ErrorCode.none,
        error_message=None,
        group_id=group_id,
        group_state=state,
        group_epoch=epochs[0],
        assignment_epoch=epochs[1],
        assignor_name=assignor_name,
        members=members,
        authorized_operations=GROUP_OPERATIONS if operations_asked else NOT_ASKED,
    )


def _absent(module: Any, group_id: str, error: ErrorCode, message: str | None = None) -> Any:
    return build(
        module.DescribedGroup,
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
        authorized_operations=NOT_ASKED,
    )
