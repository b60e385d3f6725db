"""Logins with SCRAM: an input is a client's first message, and after a NUL byte its last one.

Whatever a client sends, it is answered, logged in or refused, and no other error is raised. Without the
password nobody logs in.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from seqgate.gateway.security.sasl.exchange import LoginRefused, Mechanism
from seqgate.gateway.security.sasl.scram import scram_mechanism
from seqgate.gateway.security.sasl.scram_credential import ScramHash
from tests.fuzzing.changes import changed
from tests.fuzzing.target import Breach, Run
from tests.support.scram import NONCE, ScramClient, credential, no_token

MAX_INPUT_BYTES = 2048
PEAK_BYTES = 16 << 20
BASE_WORK = 300.0
SHA_256 = ScramHash.SHA_256
KNOWN = credential(SHA_256, "pencil")
SERVER_NONCE = b"server"


@contextmanager
def opened() -> Iterator[Run]:
    scram = scram_mechanism(
        SHA_256, lambda _, name: KNOWN if name == "ann" else None, no_token, lambda: SERVER_NONCE
    )

    def feed(data: bytes) -> None:
        with suppress(LoginRefused):
            asyncio.run(_log_in(scram, data))

    yield feed


async def _log_in(scram: Mechanism, data: bytes) -> None:
    first, _, last = data.partition(b"\0")
    login = scram.begin()
    challenge = await login.step(first)
    if challenge.logged_in is not None or not challenge.token.startswith(b"r="):
        raise Breach(f"the answer to {first!r} is {challenge}")
    step = await login.step(last)
    if step.logged_in is None or step.logged_in.principal != "User:ann":
        raise Breach(f"{last!r} is answered with {step}")
    if b"p=" + PROOF not in last:
        raise Breach(f"{last!r} logs in without the password")


def _whole_login(*, gs2: bytes = b"n,,", extensions: bytes = b"") -> bytes:
    client = ScramClient(SHA_256, "ann", "pencil", gs2=gs2, extensions=extensions)

    async def run() -> bytes:
        scram = scram_mechanism(SHA_256, lambda *_: KNOWN, no_token, lambda: SERVER_NONCE)
        challenge = await scram.begin().step(client.first())
        return client.first() + b"\0" + client.final(challenge.token)

    return asyncio.run(run())


def seeds() -> Iterator[bytes]:
    yield _whole_login()
    yield _whole_login(gs2=b"n,a=ann,")
    yield b"n,,n=a=2Cb=3D,r=%s,tokenauth=true,x=y\0c=biws,r=%s%s,p=AAAA" % (NONCE, NONCE, SERVER_NONCE)
    yield b"y,,n=ann,r=x\0"


def mutated(data: bytes, chance: random.Random) -> bytes:
    if not data or chance.random() < 0.3:
        data = chance.choice(_SEEDS)
    first, _, last = data.partition(b"\0")
    if chance.random() < 0.5:
        return changed(first, chance) + b"\0" + last
    return first + b"\0" + changed(last, chance)


_SEEDS = tuple(seeds())
PROOF = _SEEDS[0].rpartition(b",p=")[2]
