"""Settings of the authorizer. Source: Kafka's StandardAuthorizer."""

from __future__ import annotations

from typing import Final

from gateway.config.setting import Setting, SettingType, SettingValue, whole_number

_SECTION = "Authorization"
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def authorizer_complaint(value: SettingValue) -> str | None:
    """Return why `authorizer.class.name` refuses the value; None when the value is allowed."""
    if value in ("", STANDARD_AUTHORIZER):
        return None
    return f"the only authorizer is {STANDARD_AUTHORIZER}; set this name, or nothing to let everybody do everything"


def parse_super_users(text: str) -> frozenset[str]:
    """Return the principals of `super.users`, which semicolons separate. Raises ValueError: the message is the reason."""
    users = [user.strip() for user in text.split(";") if user.strip()]
    for user in users:
        if ":" not in user:
            raise ValueError(f"{user!r} must have the form User:NAME; a semicolon separates two users")
    return frozenset(users)


def super_users_complaint(value: SettingValue) -> str | None:
    """Return why `super.users` refuses the value; None when the value is allowed."""
    try:
        parse_super_users(str(value))
    except ValueError as error:
        return str(error)
    return None


AUTHORIZATION_SETTINGS = (
    Setting(
        name="authorizer.class.name",
        type=SettingType.STRING,
        default="",
        check=authorizer_complaint,
        section=_SECTION,
        doc=f"`{STANDARD_AUTHORIZER}` checks every request against the access control entries. Empty, every client may do everything.",
    ),
    Setting(
        name="super.users",
        type=SettingType.STRING,
        default="",
        check=super_users_complaint,
        section=_SECTION,
        doc="Principals that may do everything, whatever the entries say, such as `User:admin;User:CN=ops,O=Example`. Semicolons "
        "separate them, because the subject of a certificate has commas.",
    ),
    Setting(
        name="allow.everyone.if.no.acl.found",
        type=SettingType.BOOLEAN,
        default=False,
        section=_SECTION,
        doc="Whether every client may do everything with a resource to which no entry applies. As soon as one entry of anybody "
        "applies to a resource, only entries count for it.",
    ),
    Setting(
        name="seqgate.audit.enable",
        type=SettingType.BOOLEAN,
        default=True,
        section=_SECTION,
        doc="Whether a gateway with an authorizer writes an audit log: a JSON object for each refused request, each failed login "
        "and each administrative change, with principal, address and listener. Repeats are counted each minute.",
    ),
    Setting(
        name="seqgate.audit.file",
        type=SettingType.STRING,
        default=None,
        section=_SECTION,
        doc="The file that lines of the audit log are appended to, whatever `seqgate.logging.level` is; without it they go where the "
        "gateway's other log lines go, under the logger `seqgate.audit`. A file that log rotation has renamed is opened again with the "
        "next line.",
    ),
    whole_number(
        _SECTION,
        "seqgate.acls.max",
        20_000,
        "Access control entries that may exist. CreateAcls refuses further ones with POLICY_VIOLATION.",
        dynamic=True,
    ),
)
