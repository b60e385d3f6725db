"""Settings of TLS. Each may be set for one listener only, as `listener.name.NAME.SETTING` with the name in
lower case. Source: Kafka's SslConfigs and BrokerSecurityConfigs.
"""

from __future__ import annotations

from seqgate.gateway.config.authorization import rules_complaint
from seqgate.gateway.config.setting import Section, SettingValue

JKS_REMEDY = (
    "a key store in Java's own format can't be read; convert it: keytool -importkeystore -srckeystore "
    "FILE.jks -destkeystore FILE.p12 -deststoretype PKCS12"
)


def _store_type_complaint(value: SettingValue) -> str | None:
    if value == "JKS":
        return JKS_REMEDY
    return None if value in ("PEM", "PKCS12") else "choose from PEM, PKCS12"


_TLS = Section("TLS", per_listener=True)
_STORES = Section(_TLS.title, per_listener=True, dynamic_on_listener=True)


TLS_SETTINGS = (
    _STORES.text("ssl.keystore.location", None)(
        "File with the certificate chain and the private key of the listener: PEM (the key may be "
        "encrypted) or PKCS12. Connections that open after the file was replaced get the new certificate."
    ),
    _STORES.text("ssl.keystore.type", None, check=_store_type_complaint)(
        "Format of the key store: `PEM` or `PKCS12`. Unset, the gateway detects the format of the file. "
        "Keys and certificates in `ssl.keystore.key` and `ssl.keystore.certificate.chain` are always PEM."
    ),
    _STORES.secret("ssl.keystore.password", None)("Password of a PKCS12 key store."),
    _STORES.secret("ssl.keystore.key", None)("Private key in PEM (PKCS#8), instead of a key store file."),
    _STORES.secret("ssl.keystore.certificate.chain", None)(
        "Certificates in PEM that belong to `ssl.keystore.key`, the listener's own first."
    ),
    _STORES.secret("ssl.key.password", None)("Password of an encrypted private key in PEM."),
    _STORES.text("ssl.truststore.location", None)(
        "File with the certificates of authorities that sign clients' certificates: PEM or PKCS12. Without "
        "a trust store the system's authorities are trusted."
    ),
    _STORES.text("ssl.truststore.type", None, check=_store_type_complaint)(
        "Format of the trust store; unset, the gateway detects it."
    ),
    _STORES.secret("ssl.truststore.password", None)("Password of a PKCS12 trust store."),
    _STORES.secret("ssl.truststore.certificates", None)(
        "Certificates of authorities in PEM, instead of a trust store file."
    ),
    _TLS.switch("ssl.allow.dn.changes", False)(
        "Whether a renewed certificate of the listener may have another subject than the present one. "
        "Clients may not recognize it."
    ),
    _TLS.switch("ssl.allow.san.changes", False)(
        "Whether a renewed certificate of the listener may lack subject alternative names of the present "
        "one. More names are always allowed."
    ),
    _TLS.text("ssl.client.auth", "none", choices=("none", "requested", "required"))(
        "Whether clients show a certificate: `none` does not ask; `requested` accepts clients without a "
        "certificate as `User:ANONYMOUS`; `required` refuses them."
    ),
    _TLS.items("ssl.enabled.protocols", ("TLSv1.2", "TLSv1.3"), choices=("TLSv1.2", "TLSv1.3"))(
        "Versions of TLS that clients may speak."
    ),
    _TLS.items("ssl.cipher.suites", None)(
        "Cipher suites that clients may use, by their IANA names such as "
        "`TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384`; unset, those that OpenSSL considers secure. A list must "
        "name all suites of TLS 1.3 or none."
    ),
    _TLS.text("ssl.principal.mapping.rules", "DEFAULT", check=rules_complaint)(
        "How the subject of a client's certificate becomes its principal: rules "
        "`RULE:PATTERN/REPLACEMENT/[LU]` and `DEFAULT`, separated by commas. The first pattern that matches "
        "the whole subject counts; `DEFAULT` takes the subject as it is."
    ),
)
