"""A question to a cluster: the request, which broker answers it, and what its response means.

Each question of an administrator is made in one place (`admin/`), and both clusters, the blocking and the asyncio one,
ask it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from headwater.client.cluster_view import Coordinated
from headwater.wire.message import Message, Request

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class Question(Generic[AnswerT]):
    request: Request[Any]
    read: Callable[[Any], AnswerT]
    """From the response. Raises BrokerRefused for an error code in it."""
    coordinator_of: Coordinated | None = None
    """The group or transactional id whose coordinator answers; None: any broker does."""


ResponseT = TypeVar("ResponseT", bound=Message)


def question(
    request: Request[ResponseT], read: Callable[[ResponseT], AnswerT], coordinator_of: Coordinated | None = None
) -> Question[AnswerT]:
    """A question whose reader takes the response to its request, which the type checker sees here."""
    return Question(request, read, coordinator_of)
