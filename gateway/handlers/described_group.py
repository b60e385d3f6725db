"""A group of the consumer protocol, or a share group, as the two Describe APIs tell it: they differ in their members."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from gateway.handlers.authorized_operations import GROUP_OPERATIONS, NOT_ASKED
from gateway.protocol.messages import build


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


def absent(module: Any, group_id: str, error: ErrorCode, message: str | None = None) -> Any:
    """A group that can't be told of."""
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
