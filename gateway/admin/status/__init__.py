"""How a running gateway is."""
