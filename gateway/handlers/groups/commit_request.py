"""The rules for every OffsetCommit, whether the gateway decodes the request or recognizes it as a repeat."""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.group.offsets import Committer
from gateway.protocol.offset_commit_codec import OffsetCommitRequest

_FIRST_WITH_GROUP_ID_NOT_FOUND: Final = 9
_FIRST_WITH_MEMBER_EPOCH: Final = 9


def committer_of(api_version: int, request: OffsetCommitRequest) -> Committer:
    """Return the sender of a commit."""
    return Committer(
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        api_version >= _FIRST_WITH_MEMBER_EPOCH,
    )


def known_error(api_version: int, error: ErrorCode) -> ErrorCode:
    """Return the error as clients of this version know it."""
    if error is ErrorCode.group_id_not_found and api_version < _FIRST_WITH_GROUP_ID_NOT_FOUND:
        return ErrorCode.illegal_generation
    return error
