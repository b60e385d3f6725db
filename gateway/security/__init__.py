"""Principals, logins, access control lists, certificates and TLS contexts: identify clients, decide about
their rights, and protect their connections.
"""
