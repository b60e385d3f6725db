"""Logins over SASL: the exchange of messages for each mechanism, independent of connections."""
