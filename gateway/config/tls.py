"""Settings of TLS. Each may be set for one listener only, as `listener.name.NAME.SETTING` with the name in
lower case.

Source: Kafka's SslConfigs and BrokerSecurityConfigs.
"""

from __future__ import annotations

from functools import partial

from seqgate.gateway.config.authorization import rules_complaint
from seqgate.gateway.config.setting import Setting, SettingType, SettingValue

JKS_REMEDY = (
    "a key store in Java's own format can't be read; convert it: keytool -importkeystore -srckeystore "
    "FILE.jks "
    "-destkeystore FILE.p12 -deststoretype PKCS12"
)


def store_type_complaint(value: SettingValue) -> str | None:
    """Return why the setting of a store's format refuses the value; None when the value is allowed."""
    if value == "JKS":
        return JKS_REMEDY
    return None if value in ("PEM", "PKCS12") else "choose from PEM, PKCS12"


_tls_setting = partial(Setting, section="TLS", per_listener=True)
_tls_flag = partial(_tls_setting, type=SettingType.BOOLEAN, default=False)
_store_setting = partial(_tls_setting, default=None, dynamic_on_listener=True)
_tls_text = partial(_store_setting, type=SettingType.STRING)
_tls_secret = partial(_store_setting, type=SettingType.PASSWORD, sensitive=True)

TLS_SETTINGS = (
    _tls_text(
        name="ssl.keystore.location",
        doc="File with the certificate chain and the private key of the listener: PEM (the key may be "
        "encrypted) or PKCS12. "
        "Connections that open after the file was replaced get the new certificate.",
    ),
    _tls_text(
        name="ssl.keystore.type",
        check=store_type_complaint,
        doc="Format of the key store: `PEM` or `PKCS12`. Unset, the gateway detects the format of the file. "
        "Keys and certificates in `ssl.keystore.key` and `ssl.keystore.certificate.chain` are always PEM.",
    ),
    _tls_secret(
        name="ssl.keystore.password",
        doc="Password of a PKCS12 key store.",
    ),
    _tls_secret(
        name="ssl.keystore.key",
        doc="Private key in PEM (PKCS#8), instead of a key store file.",
    ),
    _tls_secret(
        name="ssl.keystore.certificate.chain",
        doc="Certificates in PEM that belong to `ssl.keystore.key`, the listener's own first.",
    ),
    _tls_secret(
        name="ssl.key.password",
        doc="Password of an encrypted private key in PEM.",
    ),
    _tls_text(
        name="ssl.truststore.location",
        doc="File with the certificates of authorities that sign clients' certificates: PEM or PKCS12. "
        "Without a trust store "
        "the system's authorities are trusted.",
    ),
    _tls_text(
        name="ssl.truststore.type",
        check=store_type_complaint,
        doc="Format of the trust store; unset, the gateway detects it.",
    ),
    _tls_secret(
        name="ssl.truststore.password",
        doc="Password of a PKCS12 trust store.",
    ),
    _tls_secret(
        name="ssl.truststore.certificates",
        doc="Certificates of authorities in PEM, instead of a trust store file.",
    ),
    _tls_flag(
        name="ssl.allow.dn.changes",
        doc="Whether a renewed certificate of the listener may have another subject than the present one. "
        "Clients may not recognize it.",
    ),
    _tls_flag(
        name="ssl.allow.san.changes",
        doc="Whether a renewed certificate of the listener may lack subject alternative names of the present "
        "one. More names are always allowed.",
    ),
    _tls_setting(
        name="ssl.client.auth",
        type=SettingType.STRING,
        default="none",
        choices=("none", "requested", "required"),
        doc="Whether clients show a certificate: `none` does not ask; `requested` accepts clients without a "
        "certificate as "
        "`User:ANONYMOUS`; `required` refuses them.",
    ),
    _tls_setting(
        name="ssl.enabled.protocols",
        type=SettingType.LIST,
        default=("TLSv1.2", "TLSv1.3"),
        choices=("TLSv1.2", "TLSv1.3"),
        doc="Versions of TLS that clients may speak.",
    ),
    _tls_setting(
        name="ssl.cipher.suites",
        type=SettingType.LIST,
        default=None,
        doc="Cipher suites that clients may use, by their IANA names such as "
        "`TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384`; unset, "
        "those that OpenSSL considers secure. A list must name all suites of TLS 1.3 or none.",
    ),
    _tls_setting(
        name="ssl.principal.mapping.rules",
        type=SettingType.STRING,
        default="DEFAULT",
        check=rules_complaint,
        doc="How the subject of a client's certificate becomes its principal: rules "
        "`RULE:PATTERN/REPLACEMENT/[LU]` and "
        "`DEFAULT`, separated by commas. The first pattern that matches the whole subject counts; `DEFAULT` "
        "takes the subject "
        "as it is.",
    ),
)
