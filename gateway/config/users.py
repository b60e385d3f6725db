"""Settings of SCRAM users."""

from __future__ import annotations

from gateway.config.setting import whole_number

USER_SETTINGS = (
    whole_number(
        "SCRAM users",
        "seqgate.scram.users.max",
        10_000,
        "Users that have SCRAM credentials. Beyond the limit AlterUserScramCredentials refuses a new user with POLICY_VIOLATION.",
        dynamic=True,
    ),
)
