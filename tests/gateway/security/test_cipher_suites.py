from __future__ import annotations

import ssl

import pytest

from seqgate.gateway.security.certificates import StoreError
from seqgate.gateway.security.tls_context import TLS_1_3_SUITES, suites_of


@pytest.mark.parametrize(
    ("name", "openssl_name"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA", "AES256-SHA"),
    ],
)
def test_openssl_knows_the_translated_name(name: str, openssl_name: str) -> None:
    assert suites_of([name]) == ((openssl_name,), False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(f"{openssl_name}:@SECLEVEL=0")
    assert openssl_name in {cipher["name"] for cipher in context.get_ciphers()}


def test_all_suites_of_tls_1_3_allow_it() -> None:
    assert suites_of(TLS_1_3_SUITES) == ((), True)


def test_some_suites_of_tls_1_3_are_refused() -> None:
    with pytest.raises(
        StoreError, match="not TLS_CHACHA20_POLY1305_SHA256, TLS_AES_128_GCM_SHA256; name all"
    ):
        suites_of(["TLS_AES_256_GCM_SHA384"])


@pytest.mark.parametrize("name", ["ECDHE-RSA-AES256-GCM-SHA384", "TLS_NONSENSE", ""])
def test_a_name_that_is_not_ianas_is_refused(name: str) -> None:
    with pytest.raises(StoreError, match=r"is no suite of TLS 1\.2 or 1\.3 by its IANA name"):
        suites_of([name])
