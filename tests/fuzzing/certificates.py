"""Key stores, trust stores, certificates of clients, and rules that make principals from them.

The first byte of an input says what the rest is. A store is refused in one sentence without any secret, or
makes a TLS context; every certificate that can be read has a subject in one line.
"""

from __future__ import annotations

import base64
import random
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from seqgate.gateway.config.authorization import NoRuleMatches, parse_rules, principal_name
from seqgate.gateway.security.certificates import StoreError
from seqgate.gateway.security.key_stores import (
    AllowedChanges,
    Store,
    change_complaint,
    identity_of,
    read_authorities,
    subject_text,
)
from seqgate.gateway.security.tls_context import TlsSettings, build_context
from tests.fuzzing.changes import changed
from tests.fuzzing.stored_keys import CERTIFICATE, KEY, OLD_KEY, PASSWORD, PKCS12
from tests.fuzzing.target import Breach, Run

MAX_INPUT_BYTES = 8192
PEAK_BYTES = 32 << 20
BASE_WORK = 300.0
TEXTS, PEM_FILE, PKCS12_FILE, TRUSTED_TEXT, TRUSTED_FILE, CLIENT, RULES = range(7)
SECRETS: Final = (PASSWORD, *(line for line in KEY.splitlines() if "-----" not in line))
MAPPINGS: Final = (
    "DEFAULT",
    r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^CN=(.*?),O=(.*?),C=(.*?)$/$1@$2/L,DEFAULT",
    r"RULE:.*CN=([^,]+).*/$1/U",
)
DER: Final = ssl.PEM_cert_to_DER_cert(CERTIFICATE)


def _refused_or_used(work: Callable[[], object]) -> None:
    """Do the work. Raises Breach for a refusal that is no sentence, or that names a secret."""
    try:
        work()
    except StoreError as error:
        text = str(error)
        if "\n" in text or any(secret in text for secret in SECRETS):
            raise Breach(f"a store is refused with {text!r}") from None


def _make_context(store: Store, trusted: Store = Store()) -> None:  # noqa: B008 - an immutable value
    _, pair = build_context(TlsSettings(store, trusted, "required" if trusted else "none"))
    identity = identity_of(pair)
    if change_complaint(identity, identity, AllowedChanges()) is not None:
        raise Breach(f"{identity} is not itself")


def _take_client(der: bytes) -> None:
    try:
        text = subject_text(der)
    except ValueError:
        return  # OpenSSL accepts no such certificate, so no client shows it
    for mapping in MAPPINGS:
        try:
            principal_name(text, parse_rules(mapping))
        except NoRuleMatches:
            if mapping == "DEFAULT":
                raise


def _read_rules(data: bytes) -> None:
    rules, _, subject = data.decode("utf-8", errors="replace").partition("\n")
    try:
        parsed = parse_rules(rules)
    except ValueError:
        return
    if len(rules) < 40:  # a long pattern may take any time; the operator wrote it
        try:
            principal_name(subject[:12], parsed)
        except NoRuleMatches:
            return


@contextmanager
def opened() -> Iterator[Run]:
    with tempfile.TemporaryDirectory(prefix="seqgate-stores-") as folder:
        path = Path(folder, "store")

        def feed(data: bytes) -> None:
            kind, content = data[:1], data[1:]
            text = content.decode("ascii", errors="replace")
            which = kind[0] % 7 if kind else RULES
            if which in (PEM_FILE, PKCS12_FILE, TRUSTED_FILE):
                path.write_bytes(content)
            store = Store(str(path), "PEM" if which == PEM_FILE else "PKCS12", PASSWORD)
            if which == TEXTS:
                own = Store(key=text, certificates=text, key_password=PASSWORD)
                _refused_or_used(lambda: _make_context(own))
            elif which in (PEM_FILE, PKCS12_FILE):
                _refused_or_used(lambda: _make_context(store))
            elif which == TRUSTED_TEXT:
                own = Store(key=KEY, certificates=CERTIFICATE)
                _refused_or_used(lambda: _make_context(own, Store(certificates=text)))
            elif which == TRUSTED_FILE:
                _refused_or_used(lambda: read_authorities(store))
            elif which == CLIENT:
                _take_client(content)
            else:
                _read_rules(content)

        yield feed


def seeds() -> Iterator[bytes]:
    for key in (KEY, OLD_KEY):
        yield bytes([TEXTS]) + (key + CERTIFICATE).encode()
        yield bytes([PEM_FILE]) + (key + CERTIFICATE).encode()
    yield bytes([PKCS12_FILE]) + PKCS12
    yield bytes([TRUSTED_TEXT]) + CERTIFICATE.encode() * 2
    yield bytes([TRUSTED_FILE]) + PKCS12
    yield bytes([CLIENT]) + DER
    for mapping in MAPPINGS:
        yield bytes([RULES]) + mapping.encode() + b"\nCN=writer,O=Example,C=DE"


def mutated(data: bytes, chance: random.Random) -> bytes:
    kind, content = data[:1] or b"\0", data[1:]
    if kind[0] % 7 in (TEXTS, PEM_FILE, TRUSTED_TEXT) and chance.random() < 0.7:
        return kind + _with_changed_block(content, chance)
    return kind + changed(content, chance)


def _with_changed_block(text: bytes, chance: random.Random) -> bytes:
    """Return PEM of which one block holds other bytes, in base64 again."""
    parts = text.split(b"-----")
    places = [at for at, part in enumerate(parts) if len(part) > 40]
    if not places:
        return changed(text, chance)
    at = chance.choice(places)
    try:
        content = base64.b64decode(b"".join(parts[at].split()))
    except ValueError:
        return changed(text, chance)
    parts[at] = b"\n" + base64.encodebytes(changed(content, chance, 2))
    return b"-----".join(parts)
