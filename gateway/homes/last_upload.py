"""Uploads what only the write-ahead log of a session has, before its gateway stops and others take over.

Requests are served meanwhile. Who takes over reads the rest of that log, and until then nobody serves.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from gateway.cluster.objects.objects import Refused, StoreFailed
from gateway.cluster.parts.manifest import Overtaken
from gateway.cluster.uploads.uploads import Uploads
from gateway.cluster.wal.session_wal import SessionFenced
from log import StorageFailed

logger = logging.getLogger(__name__)

UPLOADED_WITHIN_S: Final = 10.0
"""How long a gateway that is told to stop serves on while it uploads. What is unfinished is read by who takes over."""


async def upload_before_stop(uploads: Uploads) -> None:
    """Upload as far as possible in UPLOADED_WITHIN_S. A failure is logged: the stop goes on."""
    logger.info(
        "uploads what only the write-ahead log has, for %.0f s at most, and serves meanwhile",
        UPLOADED_WITHIN_S,
    )
    try:
        async with asyncio.timeout(UPLOADED_WITHIN_S):
            await uploads.round()
    except TimeoutError:
        logger.info("the last upload did not end within %.0f s", UPLOADED_WITHIN_S)
    except (SessionFenced, Overtaken, Refused, StoreFailed, StorageFailed) as error:
        logger.warning("the last upload ended early: %s", error)
    except Exception:
        logger.exception("the last upload failed in an unexpected way")
