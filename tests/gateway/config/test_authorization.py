from __future__ import annotations

import pytest

from seqgate.gateway.config import load_config
from seqgate.gateway.config.authorization import STANDARD_AUTHORIZER, parse_super_users
from seqgate.gateway.config.setting import ConfigError


def test_another_authorizer_is_refused_with_the_one_that_there_is() -> None:
    with pytest.raises(ConfigError, match=f"the only authorizer is {STANDARD_AUTHORIZER}"):
        load_config(overrides=["authorizer.class.name=kafka.security.authorizer.AclAuthorizer"])


def test_super_users_have_commas_in_their_names() -> None:
    assert parse_super_users(" User:a ;;User:CN=x,O=y;") == {"User:a", "User:CN=x,O=y"}


def test_a_super_user_without_a_type_is_refused() -> None:
    with pytest.raises(ConfigError, match="'admin' must have the form User:NAME"):
        load_config(overrides=["super.users=admin"])
