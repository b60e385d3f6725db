"""Objects in an S3 bucket, through obstore.

obstore's own retries are off. With them, obstore would repeat a creation whose answer was lost, and report
its own object as already there.
"""

from __future__ import annotations

import asyncio
import atexit
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import SplitResult, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store

from seqgate.gateway.cluster.objects.objects import (
    AlreadyThere,
    Buffer,
    Changed,
    Entry,
    Missing,
    Refused,
    StoreFailed,
    check_key,
    check_prefix,
)
from seqgate.gateway.cluster.objects.s3_errors import NO_ETAG, NO_SUCH_KEY, answer_in, meaning
from seqgate.gateway.config.listeners import is_loopback

if TYPE_CHECKING:
    from obstore import GetOptions, PutMode
    from obstore.store import ClientConfig, S3Config

T = TypeVar("T")
TIMEOUT_S: Final = 30.0
CONNECT_TIMEOUT_S: Final = 5.0
GRACE_S: Final = 10.0
"""The time, after the request's own timeout, for what the timeout does not cover: asking for credentials."""
PAGE: Final = 1000
LAST_WORDS_S: Final = 0.2
"""The time that the threads of obstore have, at the end of the process, to hand over their last results."""
_RANGE_NOT_SATISFIABLE: Final = 416
_CONFLICT: Final = 409
_RANGE_IGNORED: Final = "Received non-partial response"


# A thread of obstore that hands over a result while the interpreter is being finalized aborts the process.
# Source: https://github.com/PyO3/pyo3-async-runtimes/issues/40
atexit.register(time.sleep, LAST_WORDS_S)


class ObstoreObjects:
    """An `ObjectStore` under a prefix of a bucket. `settings` of obstore override the AWS_ variables."""

    def __init__(
        self,
        bucket: str,
        prefix: str,
        settings: Mapping[str, str],
        timeout_s: float = TIMEOUT_S,
        *,
        authorities: bytes | None = None,
    ) -> None:
        """Take the place of the objects. Nothing is sent before the first call. `authorities` are
        certificates (PEM) that TLS trusts beside the system's. Raises ValueError, and what obstore raises,
        for settings or certificates that can't be used.
        """
        self._where = f"s3://{bucket}/{prefix}".rstrip("/")
        self._timeout_s = timeout_s + GRACE_S
        endpoint = urlsplit(settings.get("endpoint", ""))
        is_plain = endpoint.scheme == "http"
        own = {"conditional_put": "etag", "disable_bulk_delete": True, **_protection(endpoint)}
        config = cast("S3Config", {**own, **settings})
        client: ClientConfig = {
            "timeout": timedelta(seconds=timeout_s),
            "connect_timeout": timedelta(seconds=min(CONNECT_TIMEOUT_S, timeout_s)),
            "allow_http": is_plain,
        }
        if authorities is not None:
            client["root_certificate"] = authorities
        self._store = S3Store(
            bucket,
            prefix=prefix or None,
            config=config,
            client_options=client,
            retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=timeout_s)},
        )

    async def create(self, key: str, content: bytes | Sequence[Buffer]) -> None:
        try:
            await self._put(key, content, "create")
        except (AlreadyExistsError, PreconditionError):
            raise AlreadyThere(key) from None

    async def get(self, key: str, first: int = 0, size_bytes: int | None = None) -> bytes:
        if not first and size_bytes is None:
            return (await self._get(key, {}))[0]
        if size_bytes == 0:
            return (await self.get(key, first, 1))[:0]
        end = None if size_bytes is None else first + size_bytes
        return await self._range(
            key, {"range": {"offset": first} if end is None else (first, end)}, first, end
        )

    async def get_end(self, key: str, size_bytes: int) -> bytes:
        if not size_bytes:
            return await self.get(key, 0, 0)
        return await self._range(key, {"range": {"suffix": size_bytes}}, -size_bytes, None)

    async def read(self, key: str) -> tuple[bytes, str]:
        content, version = await self._get(key, {})
        return content, self._checked(key, version)

    async def replace(self, key: str, content: bytes, version: str | None) -> str:
        try:
            written = await self._put(key, content, "create" if version is None else {"e_tag": version})
        except (AlreadyExistsError, PreconditionError):
            raise Changed(key) from None
        return self._checked(key, written)

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[Entry]:
        check_prefix(prefix)
        pages = obstore.list(self._store, prefix or None, offset=after or None, chunk_size=PAGE)
        iterator = pages.__aiter__()
        last = after
        while True:
            try:
                async with asyncio.timeout(self._timeout_s):
                    page = await iterator.__anext__()
            except StopAsyncIteration:
                return
            except (BaseError, OSError) as error:
                raise self._failure(prefix, error) from None
            for found in page:
                if found["path"] <= last:
                    raise Refused(
                        f"{self._where}: the store does not list objects in the order of their keys; use a "
                        "general purpose bucket"
                    )
                last = found["path"]
                yield Entry(last, found["size"], int(found["last_modified"].timestamp() * 1000))

    async def delete(self, key: str) -> None:
        check_key(key)
        try:
            await self._answered(obstore.delete_async(self._store, key))
        except (BaseError, OSError) as error:
            if answer_in(str(error)).code != NO_SUCH_KEY:
                raise self._failure(key, error) from None

    async def close(self) -> None:
        """Do nothing: obstore closes its connections when the store is released."""

    # --- requests

    async def _put(self, key: str, content: bytes | Sequence[Buffer], mode: PutMode) -> str | None:
        """Put under a condition. Raises AlreadyExistsError or PreconditionError when it does not hold."""
        check_key(key)
        try:
            result = await self._answered(
                obstore.put_async(self._store, key, content or b"", mode=mode, use_multipart=False)
            )
        except (AlreadyExistsError, PreconditionError) as error:
            # obstore also reports a conflict (409) and, for a replacement, every 404 as a failed condition.
            answer = answer_in(str(error))
            if answer.status == _CONFLICT or (answer.status == 404 and answer.code != NO_SUCH_KEY):
                raise self._failure(key, error) from None
            raise
        except (BaseError, OSError) as error:
            raise self._failure(key, error) from None
        return result["e_tag"]

    async def _get(self, key: str, options: GetOptions) -> tuple[bytes, str | None]:
        """Return the content in the range of `options`, and the object's ETag."""
        check_key(key)
        try:
            response = await self._answered(obstore.get_async(self._store, key, options=options))
            content = bytes(await self._answered(response.bytes_async()))
        except (BaseError, OSError) as error:
            answer = answer_in(str(error))
            if answer.status == 404 and answer.code == NO_SUCH_KEY:
                raise Missing(key) from None
            raise self._failure(key, error) from error
        first, end = response.range
        if len(content) != end - first:
            raise StoreFailed(
                f"{self._where}/{key}: the store sent {len(content)} bytes instead of {end - first}"
            )
        return content, response.meta["e_tag"]

    async def _range(self, key: str, options: GetOptions, first: int, end: int | None) -> bytes:
        try:
            return (await self._get(key, options))[0]
        except StoreFailed as failure:
            text = str(failure.__cause__)
            if answer_in(text).status == _RANGE_NOT_SATISFIABLE:
                return b""  # the range begins at or behind the end of the content
            if _RANGE_IGNORED not in text:
                raise
        # The store sent the whole content, as some do when it is empty.
        return (await self._get(key, {}))[0][first:end]

    async def _answered(self, request: Awaitable[T]) -> T:
        """Wait for an answer, at most for the timeout; TimeoutError is an OSError."""
        # wait_for of Python 3.11 would ignore a cancellation that comes together with the answer
        async with asyncio.timeout(self._timeout_s):
            return await request

    def _failure(self, key: str, error: Exception) -> StoreFailed | Refused:
        if isinstance(error, TimeoutError):
            return StoreFailed(f"{self._where}/{key}: no answer in {self._timeout_s} s")
        return meaning(f"{self._where}/{key}", str(error))

    def _checked(self, key: str, version: str | None) -> str:
        if version is None:
            raise Refused(f"{self._where}/{key}: {NO_ETAG}")
        return version


def _protection(endpoint: SplitResult) -> Mapping[str, Any]:
    """Return the settings that protect the content of a put on its way to the store. Signing a content takes
    its SHA-256, which costs more CPU than all else of a put. TLS protects the content without it. On the
    loopback, where only a proxy could change the content, the request has a checksum that the store compares.
    """
    if endpoint.scheme != "http":
        return {"unsigned_payload": True}
    if is_loopback(endpoint.hostname or ""):
        return {"unsigned_payload": True, "checksum_algorithm": "crc64nvme"}
    return {"unsigned_payload": False}
