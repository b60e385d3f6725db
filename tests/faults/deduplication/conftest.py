"""The Spark that counts."""

from __future__ import annotations

from tests.compat.spark.conftest import spark

__all__ = ["spark"]
