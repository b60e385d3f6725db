"""The settings: one table under Kafka's names, with values from file, environment and flags."""

from __future__ import annotations

from seqgate.gateway.config.config import Config, ConfigEntry, ConfigSource
from seqgate.gateway.config.listeners import Listener
from seqgate.gateway.config.load import load_config
from seqgate.gateway.config.setting import (
    ConfigError,
    InvalidValueError,
    Setting,
    SettingType,
    SettingValue,
    render,
)
from seqgate.gateway.config.table import BY_NAME, BY_TOPIC_NAME, SETTINGS, nearest

__all__ = [
    "BY_NAME",
    "BY_TOPIC_NAME",
    "SETTINGS",
    "Config",
    "ConfigEntry",
    "ConfigError",
    "ConfigSource",
    "InvalidValueError",
    "Listener",
    "Setting",
    "SettingType",
    "SettingValue",
    "load_config",
    "nearest",
    "render",
]
