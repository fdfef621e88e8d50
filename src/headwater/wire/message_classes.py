"""The classes of the messages of an API, by its number. A module of `typed/` is imported when its API is first used."""

from functools import cache
from importlib import import_module
from typing import Any

from headwater.wire.api_keys import ApiKey
from headwater.wire.schema import UnknownMessage


@cache
def request_class(api_key: int) -> Any:
    """Raises UnknownMessage."""
    try:
        name = ApiKey(api_key).name.lower()
    except ValueError:
        raise UnknownMessage(f"there is no API {api_key}") from None
    module = import_module(f"headwater.wire.typed.{name}")
    return getattr(module, f"{name.title().replace('_', '')}Request")


def response_class(api_key: int) -> Any:
    return request_class(api_key).RESPONSE
