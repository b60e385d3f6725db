"""The messages on the control socket: a request, its answer, and the error that can replace the answer.

The base classes of requests are here; the requests themselves are in the `messages` module of each subject.
This module imports nothing of the gateway, so that a command starts fast.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Generic, Self, TypeVar, get_args

import msgspec

MAX_REQUEST_BYTES: Final = 64 * 1024
MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
PAGE_ROWS: Final = 1_000
"""Rows of a page if the request gives no limit."""
MAX_PAGE_ROWS: Final = 10_000
"""The highest limit of a page; the gateway refuses a request with a higher one."""

RUNNING: Final = "running"
"""The word for a running gateway as the source of an answer."""
STOPPED: Final = "stopped"
"""The word for a data directory without a running gateway as the source of an answer."""

A = TypeVar("A")


class ControlError(Exception):
    """The gateway refused an operation, or the operation failed; the message is one sentence for the
    operator.
    """


class NotRunning(ControlError):
    """No gateway answers on the control socket of this data directory."""


class NoAnswer(ControlError):
    """The gateway gave no answer to what it was asked, and may have done it."""


class Elsewhere(ControlError):
    """The gateway refused because another gateway knows the answer, or must carry the operation out."""


class Request(msgspec.Struct, Generic[A], tag_field="operation", forbid_unknown_fields=True):
    """A request whose answer has the type A. Its tag is the name of the operation.

    `is_spread`: each of several workers knows a part of the answer.
    """

    is_spread: ClassVar[bool] = False

    @classmethod
    def operation_name(cls) -> str:
        """Return the name of the operation."""
        return str(cls.__struct_config__.tag)

    @classmethod
    def answer_type(cls) -> Any:
        """Return the type of the answer."""
        return get_args(vars(cls)["__orig_bases__"][0])[0]

    def next_page(self, answer: A) -> Self | None:  # noqa: ARG002 - the answers that come in pages use it
        """Return the request for the page after `answer`; None: no page follows."""
        return None


class PagedRequest(Request[A], kw_only=True):
    """A request for at most `limit` rows of a list."""

    limit: int = PAGE_ROWS


class Answer(msgspec.Struct, omit_defaults=True):
    """The answer of the gateway: the result, or a sentence that says why there is none.

    `note` says what the result lacks because other gateways of the cluster know it. `is_elsewhere`: the error
    is that one of them knows.
    """

    result: msgspec.Raw = msgspec.Raw(b"null")
    error: str | None = None
    note: str | None = None
    is_elsewhere: bool = False
