"""The files of a secured broker for tests, as `headwater security init` writes them, with users that a test names."""

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from headwater.broker.settings.setting import Address
from headwater.cli.client_settings import ClientKind
from headwater.cli.security.secured_directory import CONFIG, SecuredPlan, client_file, write
from headwater.transport.ports import HOST, free_port

ADMIN: Final = "admin"
"""May do everything."""


def secured_config(directory: Path, users: Sequence[str]) -> dict[str, Any]:
    """Of the broker with this data directory; the files are written if they are not there."""
    if not (directory / CONFIG).exists():
        others = [user for user in users if user != ADMIN]
        listen = Address(HOST, free_port())
        write(SecuredPlan(directory=directory, hosts=[HOST], listen=listen, users=[ADMIN, *others]))
    config = tomllib.loads((directory / CONFIG).read_text(encoding="utf-8"))
    security = config.pop("security")
    return {**config, **security}


def librdkafka_settings(directory: Path, user: str) -> dict[str, Any]:
    """With which confluent-kafka logs in as this user. Raises FileNotFoundError for an unknown one."""
    settings: dict[str, Any] = json.loads(client_file(directory, user, ClientKind.LIBRDKAFKA).read_text())
    return settings
