"""A history as EDN, one map per line, for the checkers of the Clojure world.

    {:event :send-began, :producer "p", :topic "orders", :value "v1", :partition 0}

The events are those of `events.py`. They are not Jepsen's operations: what makes one operation differs from checker to
checker, and is a few lines of Clojure there.
"""

import enum
import json

from headwater.testing.oracles.checkers.events import Event
from headwater.testing.oracles.checkers.json_lines import as_object


def edn(event: Event) -> str:
    body = as_object(event)
    name = str(body.pop("event"))
    fields = [("event", _keyword(name)), *((field, _form(value)) for field, value in body.items())]
    return "{" + ", ".join(f"{_keyword(field)} {form}" for field, form in fields) + "}"


def _form(value: object) -> str:
    match value:
        case None:
            return "nil"
        case bool():
            return "true" if value else "false"
        case enum.StrEnum():
            return _keyword(value)
        case str():
            return json.dumps(value)
        case tuple():
            return "[" + " ".join(map(_form, value)) + "]"
        case _:
            return str(value)


def _keyword(name: str) -> str:
    return ":" + name.replace("_", "-")
