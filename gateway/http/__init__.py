"""A small HTTP/1.1 server for programs of the operator."""

from seqgate.gateway.http.server import JSON, PLAIN, HttpAnswer, HttpRequest, HttpServer

__all__ = ["JSON", "PLAIN", "HttpAnswer", "HttpRequest", "HttpServer"]
