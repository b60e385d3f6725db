"""Handles the errors of a Produce that is carried out after its turn, when no caller can handle them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.handlers.answering.api import CloseConnection, Deferred, RequestContext
from gateway.handlers.records.produce_services import ProduceServices

logger = logging.getLogger(__name__)


@contextmanager
def failing(context: RequestContext[ProduceServices], deferred: Deferred) -> Iterator[None]:
    """Run the block; log its error and fail the answer.

    The error must not reach the caller, which serves other requests too.
    """
    try:
        yield
    except CloseConnection as error:
        logger.warning("a Produce of %s that waited fails: %s", context.peer.name, error)
        deferred.fail()
    except Exception:
        logger.exception("a Produce of %s that waited can't be carried out", context.peer.name)
        deferred.fail()
