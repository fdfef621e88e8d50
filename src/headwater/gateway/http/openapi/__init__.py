"""The description of the HTTP interface, made from the declarations of the routes and served at /openapi.json."""

from headwater.gateway.http.openapi.operation import Operation, answer

__all__ = ["Operation", "answer"]
