"""Each handler takes the request of its API and gives its response: what the type checker cannot see, because the
dispatcher finds handlers by their files."""

import importlib
import inspect
import pkgutil
from types import ModuleType
from typing import get_args

import pytest

from headwater.broker import handlers
from headwater.wire.message_classes import request_class, response_class

MODULES = [
    importlib.import_module(f"{handlers.__name__}.{each.name}") for each in pkgutil.iter_modules(handlers.__path__)
]
BY_HAND = {"Produce", "Fetch"}


def test_every_api_but_those_that_are_coded_by_hand_has_a_typed_handler() -> None:
    assert {module.API.name for module in MODULES if not hasattr(module, "handle")} == BY_HAND


@pytest.mark.parametrize("module", [each for each in MODULES if hasattr(each, "handle")], ids=lambda it: it.API.name)
def test_a_handler_takes_and_gives_the_messages_of_its_api(module: ModuleType) -> None:
    """Some give the response, or a coroutine of it."""
    signature = inspect.signature(module.handle)
    response = response_class(module.API.key)
    given = signature.return_annotation
    assert signature.parameters["request"].annotation is request_class(module.API.key)
    assert given is response or all(each is response or response in get_args(each) for each in get_args(given))
    assert request_class(module.API.key).__name__ == f"{module.API.name}Request"
