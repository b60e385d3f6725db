"""Logins over SASL: the exchanges of each mechanism, which know nothing of connections."""
