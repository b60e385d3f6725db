"""A block store in Redis, shared by any number of gateways.

A claim is one script: atomic, in one round trip. The store has three keys: a hash of state (`id`, the
identity of the store; `next`, the next producer id; `server`, the run id of the process that served the last
claim; `vouched`, the next id that an operator set; `version`, the version of this layout), a list of all
blocks, and a hash of reported usage. A store without `version` has version 1. A script changes nothing in a
store of a later version.

Redis can lose data: it is killed before it saved, fails over to a replica that lagged, is restored from a
backup, or is flushed. Two rules ensure that no id is handed out twice. Neither rule depends on how Redis is
configured to persist:

1. A gateway keeps the highest state of the store that it saw in its own durable memory. When the store has a
   lower next id or another identity, or is empty, the gateway raises StoreWentBack before it claims anything.
   An operator resolves this: move the next id forward to the highest id that any gateway saw, or beyond.
2. A gateway that has not seen every claim can't notice a loss. So when the store is new, or when another
   server process answers than at the last claim, the next id jumps to the present time in microseconds, if
   that is higher. All earlier ids lie below that, as long as fewer than a million ids per second were claimed
   over the life of the store.

A Lua number can't hold integers above 2**53. So the scripts compare ids as decimal strings and count with
HINCRBY.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from seqgate.pid_allocator.blocks import (
    MAX_PRODUCER_ID,
    LastSeen,
    LastSeenPort,
    NextIdBehind,
    ProducerIdBlock,
    ProducerIdsExhausted,
    StoreUnavailable,
    StoreWentBack,
    UnknownStoreVersion,
)

VERSION: Final = 1

_BELOW: Final = """
local function below(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end
"""

_CHECK_VERSION: Final = f"""
local this_version = '{VERSION}'
local version = redis.call('HGET', KEYS[1], 'version')
if version and tonumber(version) > tonumber(this_version) then return {{'newer', version}} end
"""

_CLAIM: Final = (
    _BELOW
    + _CHECK_VERSION
    + """
local size, owner, now_ms, fresh_id, seen_id, seen_next, limit = unpack(ARGV)
local found = redis.call('HMGET', KEYS[1], 'id', 'next', 'server', 'vouched')
local id, next_id, server, vouched = found[1], found[2], found[3], found[4]
if seen_id ~= '' then
  if not id then return {'lost'} end
  if id ~= seen_id and not (vouched and not below(vouched, seen_next)) then return {'other', id, next_id} end
  if below(next_id, seen_next) then return {'back', id, next_id} end
end
id = id or fresh_id
next_id = next_id or '0'
local info = redis.pcall('INFO', 'server')
local run_id = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
if run_id ~= server then
  local time = redis.call('TIME')
  local present = time[1] .. string.format('%06d', tonumber(time[2]))
  if below(next_id, present) then next_id = present end
end
redis.call('HSET', KEYS[1], 'id', id, 'next', next_id, 'server', run_id, 'version', this_version)
local grown = redis.pcall('HINCRBY', KEYS[1], 'next', size)
if type(grown) == 'table' and grown.err then
  if string.find(grown.err, 'overflow') then return {'exhausted', id, next_id} end
  return grown
end
local end_id = redis.call('HGET', KEYS[1], 'next')
if below(limit, end_id) then
  redis.call('HSET', KEYS[1], 'next', next_id)
  return {'exhausted', id, next_id}
end
redis.call('RPUSH', KEYS[2], next_id .. ' ' .. end_id .. ' ' .. now_ms .. ' ' .. owner)
return {'claimed', id, next_id, end_id}
"""
)

_MOVE_NEXT: Final = (
    _BELOW
    + _CHECK_VERSION
    + """
local next_id = redis.call('HGET', KEYS[1], 'next') or '0'
if below(ARGV[1], next_id) then return {'behind', next_id} end
redis.call('HSETNX', KEYS[1], 'id', ARGV[2])
redis.call('HSET', KEYS[1], 'next', ARGV[1], 'vouched', ARGV[1], 'version', this_version)
return {'moved', next_id}
"""
)


class RedisBlockStore:
    """The BlockStore and UsageStore in Redis.

    `key_prefix` separates clusters that share one Redis. A connection and a request may take `timeout_ms`
    each, so every call ends within twice as long, even when Redis hangs. Without `last_seen` (in an
    operator's command) rule 1 of this module does not apply.
    """

    def __init__(
        self, url: str, *, key_prefix: str, timeout_ms: int, last_seen: LastSeenPort | None = None
    ) -> None:
        """Prepare a client for `url` (`redis://[user:password@]host:port/db`). The first call connects.
        Raises ValueError when the URL can't be parsed.
        """
        self._redis: Redis = Redis.from_url(
            url,
            decode_responses=True,
            socket_connect_timeout=timeout_ms / 1000,
            socket_timeout=timeout_ms / 1000,
            # The client replaces a connection that died while idle once. A claim sent twice this way only
            # skips a block.
            retry=Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
        )
        self._timeout_s = 2 * timeout_ms / 1000
        # The braces put all keys into one slot of a Redis Cluster. A script over several keys needs that.
        self._state_key = f"{{{key_prefix}:producer-ids}}"
        self._blocks_key = f"{self._state_key}:blocks"
        self._used_key = f"{self._state_key}:used"
        self._last_seen = last_seen

    async def claim(self, size: int, owner: str, now_ms: int) -> ProducerIdBlock:
        """Claim and return a block that nobody had before. Save the store's new state in the gateway's memory
        first. Raises StoreUnavailable; StoreWentBack or UnknownStoreVersion when nothing was claimed;
        ProducerIdsExhausted; and ValueError for a size below 1.
        """
        if size < 1:
            raise ValueError(f"the size of a block must be at least 1, not {size}")
        seen = None if self._last_seen is None else await self._last_seen.load()
        seen_id, seen_next = ("", 0) if seen is None else (seen.store_id, seen.next_producer_id)
        outcome, *details = await self._script(
            _CLAIM,
            [self._state_key, self._blocks_key],
            [size, owner, now_ms, uuid.uuid4().hex, seen_id, seen_next, MAX_PRODUCER_ID + 1],
        )
        if outcome == "exhausted":
            raise ProducerIdsExhausted(f"fewer than {size} producer ids are left from {details[1]} on")
        if outcome != "claimed":
            raise StoreWentBack(_went_back_message(outcome, details, seen_next))
        store_id, first_producer_id, next_producer_id = details[0], int(details[1]), int(details[2])
        if self._last_seen is not None:
            await self._last_seen.save(LastSeen(store_id, next_producer_id))
        return ProducerIdBlock(first_producer_id, next_producer_id - 1, owner, now_ms)

    async def blocks(self) -> list[ProducerIdBlock]:
        """Return all blocks in the order of their claims. Raises StoreUnavailable."""
        lines = await self._bounded(lambda: self._redis.lrange(self._blocks_key, 0, -1))
        return [_parse_block(line) for line in lines]

    async def next_producer_id(self) -> int:
        """Return the lowest id for the next block; 0 in an empty store. Raises StoreUnavailable."""
        return int(await self._bounded(lambda: self._redis.hget(self._state_key, "next")) or 0)

    async def move_next(self, producer_id: int) -> int:
        """Make the next block begin at `producer_id` or later, on the caller's assurance that no id from
        there on was ever used.

        Returns the previous next id. Raises NextIdBehind when the next id is higher than `producer_id`
        already, UnknownStoreVersion, and StoreUnavailable.
        """
        outcome, previous = await self._script(_MOVE_NEXT, [self._state_key], [producer_id, uuid.uuid4().hex])
        if outcome == "behind":
            raise NextIdBehind(
                f"The next producer id is {previous} and can't be moved back to {producer_id}. "
                f"Choose {previous} or higher."
            )
        return int(previous)

    async def report_used(self, first_producer_id: int, used: int) -> None:
        """Store that `used` ids of the block at `first_producer_id` went out. Raises StoreUnavailable."""
        await self._bounded(lambda: self._redis.hset(self._used_key, str(first_producer_id), str(used)))

    async def used(self) -> dict[int, int]:
        """Return the number of ids handed out, by the first id of the block. Raises StoreUnavailable."""
        found = await self._bounded(lambda: self._redis.hgetall(self._used_key))
        return {int(first_producer_id): int(used) for first_producer_id, used in found.items()}

    async def close(self) -> None:
        await self._redis.aclose()

    async def _script(self, script: str, keys: list[str], arguments: list[object]) -> list[str]:
        # EVAL, not EVALSHA: a restarted server has lost its scripts, and one round trip must suffice even
        # then.
        reply: list[str] = await self._bounded(
            lambda: self._redis.eval(script, len(keys), *keys, *(str(argument) for argument in arguments))
        )
        if reply[0] == "newer":
            raise UnknownStoreVersion(
                f"The producer ids in Redis have version {reply[1]}; this program reads version {VERSION}. "
                "Upgrade this gateway."
            )
        return reply

    async def _bounded(self, call: Callable[[], Any]) -> Any:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await call()
        except TimeoutError as error:
            raise StoreUnavailable(f"Redis did not answer within {self._timeout_s:g} s.") from error
        except (RedisError, OSError) as error:
            raise StoreUnavailable(f"Redis is not available: {error}") from error


def _parse_block(line: str) -> ProducerIdBlock:
    first_producer_id, next_producer_id, claimed_at_ms, owner = line.split(" ", 3)
    return ProducerIdBlock(int(first_producer_id), int(next_producer_id) - 1, owner, int(claimed_at_ms))


def _went_back_message(outcome: str, details: list[str], seen_next: int) -> str:
    if outcome == "lost":
        what = "The producer ids in Redis are lost: the store is empty"
    elif outcome == "other":
        what = f"Redis holds another store of producer ids ({details[0]}, next id {details[1]})"
    else:
        what = f"The producer ids in Redis were set back: the next id is {details[1]}"
    return (
        f"{what}, but this gateway saw the next id at {seen_next}. The gateway claims nothing from this "
        "store, because ids could be used twice. Restore the newest data of Redis, or move the next id to "
        f"{seen_next}, or higher if another gateway saw a higher one."
    )
