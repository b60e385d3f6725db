"""Prints docs/configuration.md: `python -m seqgate.gateway.config`."""

from __future__ import annotations

import sys

from seqgate.gateway.config.documentation import configuration_page

if __name__ == "__main__":
    sys.stdout.write(configuration_page())
