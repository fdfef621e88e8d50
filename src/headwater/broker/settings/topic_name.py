"""What a topic may be called.

Dots and underscores become the same letter in metric names, so two topics that differ in nothing else may not exist
together.
"""

import re
from collections.abc import Iterable

from headwater.model.config_key import shown
from headwater.model.errors import ErrorCode, RequestError

MAX_NAME_CHARS = 249
"""What leaves room for a partition number in a file name of 255 bytes."""

_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION unless the name is one that Kafka would take."""
    if not name:
        problem = "is empty"
    elif name in (".", ".."):
        problem = "must not be '.' or '..'"
    elif len(name) > MAX_NAME_CHARS:
        problem = f"has {len(name)} characters, at most {MAX_NAME_CHARS} are allowed"
    elif not _NAME.match(name):
        problem = "has characters other than ASCII letters, digits, '.', '_' and '-'"
    else:
        return
    raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name {shown(name)} {problem}.")


def colliding_form(name: str) -> str:
    """Equal for two names that may not exist together."""
    return name.replace(".", "_")


def check_no_collision(name: str, existing: Iterable[str]) -> None:
    """Raise INVALID_TOPIC_EXCEPTION if another topic's name differs only in '.' and '_'."""
    form = colliding_form(name)
    if "_" not in form:
        return
    for other in existing:
        if other != name and colliding_form(other) == form:
            raise RequestError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic name {shown(name)} collides with the topic {shown(other)}: they differ only in '.' and '_'.",
            )
