"""Names of cipher suites: IANA's, which Kafka's settings use, and OpenSSL's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gateway.security.errors import StoreError

TLS_1_3_SUITES: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")


class Suites(NamedTuple):
    """The cipher suites for TLS 1.2, by OpenSSL's names, and whether TLS 1.3 is allowed."""

    tls_1_2: tuple[str, ...]
    allows_tls_1_3: bool


def suites_of(names: Sequence[str]) -> Suites:
    """Return the suites that a list of IANA names allows.

    Raises StoreError for a list that has some suites of TLS 1.3 and not the others: Python can't choose among them.
    """
    of_1_3 = {name for name in names if name in TLS_1_3_SUITES}
    missing = [name for name in TLS_1_3_SUITES if name not in of_1_3]
    if of_1_3 and missing:
        raise StoreError(
            f"ssl.cipher.suites has suites of TLS 1.3, but not {', '.join(missing)}; name all of TLS 1.3 or none"
        )
    return Suites(tuple(_openssl_name(name) for name in names if name not in of_1_3), bool(of_1_3))


def _openssl_name(name: str) -> str:
    """Return OpenSSL's name: `TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256` is `ECDHE-RSA-AES128-SHA256`."""
    exchange, found, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if not (found and name.startswith("TLS_")):
        raise StoreError(
            f"ssl.cipher.suites names {name}, which is no suite of TLS 1.2 or 1.3 by its IANA name"
        )
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC", "")
    if cipher.startswith("CHACHA20"):
        cipher = "CHACHA20_POLY1305"
    parts = ([] if exchange == "RSA" else [exchange]) + [cipher]
    return "-".join(parts).replace("_", "-")
