"""`python -m gateway.config` prints docs/configuration.md."""

from __future__ import annotations

import sys

from gateway.config.documentation import configuration_page

if __name__ == "__main__":
    sys.stdout.write(configuration_page())
