"""The description of the HTTP interface, made from the declarations of the routes and served at /openapi.json."""

from headwater.gateway.openapi.operation import Operation, answer, operation

__all__ = ["Operation", "answer", "operation"]
