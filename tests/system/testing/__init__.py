"""Brokers for tests in processes of their own, and the control over HTTP."""
