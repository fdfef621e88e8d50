"""How a client's attempt to say who it is ended: for the audit, and never with what it proved itself by."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

CERTIFICATE = "certificate"
"""Stands for the mechanism where the certificate of the client says who it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginOutcome:
    is_let_in: bool
    listener: str
    address: str
    mechanism: str
    principal: str
    """Of a login that failed: who the client said it is; empty if it did not say."""
    reason: str = ""
    """Why it failed."""


RecordLogin: TypeAlias = Callable[[LoginOutcome], None]


def not_recorded(outcome: LoginOutcome) -> None:
    """Where there is no audit."""
