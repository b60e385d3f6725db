"""Prints docs/configuration.md: `python -m gateway.config`."""

from __future__ import annotations

import sys

from gateway.config.documentation import configuration_page

if __name__ == "__main__":
    sys.stdout.write(configuration_page())
