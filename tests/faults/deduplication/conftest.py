"""The Spark session that counts lines."""

from __future__ import annotations

from tests.compat.spark.conftest import spark

__all__ = ["spark"]
