"""The loggers of this process as administrators see and alter them (resource type BROKER_LOGGER).

Levels have Kafka's names. An alteration holds at once, for this node, until it is taken back or the process ends.
"""

import logging
from collections.abc import Iterable
from typing import Final

from headwater.broker.settings.config_resources import AlterOperation, ConfigEntry
from headwater.broker.settings.topic_config import ConfigCandidate
from headwater.model.config_key import ConfigSource, ConfigType, shown
from headwater.model.errors import ErrorCode, RequestError

ROOT: Final = "root"
OURS: Final = "headwater"
LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
MAX_LOGGERS: Final = 1_000
"""That are shown. A process has some dozens; what makes more of them, makes them by mistake."""


class BrokerLoggers:
    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        """The levels of what was altered, to go back to."""

    def describe(self) -> list[ConfigEntry]:
        doc = "The level from which on lines are logged."
        return [
            ConfigEntry(
                name, ConfigType.STRING, doc, False,
                (ConfigCandidate(name, level_name(logger), ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG),),
            )
            for name, logger in _loggers().items()
        ]  # fmt: skip

    def alter(self, changes: Iterable[tuple[str, int, str | None]], *, validate_only: bool = False) -> None:
        """All of the changes, or none of them. Raises RequestError."""
        known = _loggers()
        decided: list[tuple[str, int | None]] = []
        for name, operation, value in changes:
            if name in dict(decided):
                raise RequestError(ErrorCode.INVALID_REQUEST, f"Logger {shown(name)} is named twice.")
            if name not in known:
                raise RequestError(ErrorCode.INVALID_CONFIG, f"There is no logger {shown(name)}.")
            decided.append((name, _decided_level(name, operation, value)))
        if validate_only:
            return
        for name, level in decided:
            before = self._before.setdefault(name, known[name].level)
            known[name].setLevel(before if level is None else level)


def level_name(logger: logging.Logger) -> str:
    """The one in force. A level between two of Kafka's is the more talkative one."""
    level = logger.getEffectiveLevel()
    return next((name for name, least in LEVELS.items() if level >= least), "TRACE")


def _decided_level(name: str, operation: int, value: str | None) -> int | None:
    """None: the level before all alterations."""
    if operation == AlterOperation.DELETE:
        if name == ROOT:
            raise RequestError(ErrorCode.INVALID_REQUEST, "The root logger must have a level.")
        return None
    if operation != AlterOperation.SET:
        raise RequestError(ErrorCode.INVALID_REQUEST, "A logger's level can be set and deleted, nothing else.")
    if value not in LEVELS:
        raise RequestError(
            ErrorCode.INVALID_CONFIG,
            f"Logger {name} cannot have level {shown(value)}; {', '.join(LEVELS)} are allowed.",
        )
    return LEVELS[value]


def _loggers() -> dict[str, logging.Logger]:
    """The root and Headwater's own first."""
    found = {ROOT: logging.getLogger(), OURS: logging.getLogger(OURS)}
    for name in sorted(logging.Logger.manager.loggerDict):
        logger = logging.Logger.manager.loggerDict[name]
        if isinstance(logger, logging.Logger) and len(found) < MAX_LOGGERS:
            found.setdefault(name, logger)
    return found
