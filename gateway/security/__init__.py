"""Principals, logins, ACLs, certificates and TLS: identify clients, decide their rights, protect them."""
