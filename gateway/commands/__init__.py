"""The commands beside `serve`, one module per group. Each imports late what it needs, so that `serve` starts fast."""
