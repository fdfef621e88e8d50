"""JSON from strangers: an object, no name in it twice, no numbers that JSON does not have.

Two readers of one text must not see two values, and no text may cost more than its length. How large a number may be,
its reader decides.
"""

import json
from typing import Any, NoReturn


class MalformedJson(ValueError):
    """Not an object of JSON, or one that could be read in two ways."""


def parse_object(data: bytes) -> dict[str, Any]:
    """Raises MalformedJson."""
    try:
        value = json.loads(data.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise MalformedJson("The text is not JSON, or has a name twice.") from error
    if not isinstance(value, dict):
        raise MalformedJson("The text is not a JSON object.")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise MalformedJson("A name stands in an object twice.")
    return unique


def _no_constant(name: str) -> NoReturn:
    raise MalformedJson(f"{name} is not a number of JSON.")
