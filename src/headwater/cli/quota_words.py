"""Limits as people write them, and read them: 10MB/s, 50%, 5/s."""

import re
from collections.abc import Mapping
from typing import Final

from headwater.cli.output import CommandFailed
from headwater.model.errors import RequestError
from headwater.security.quota_entities import QuotaEntity, QuotaKey, check_quota

OPTIONS: Final = {
    "produce": QuotaKey.PRODUCER_BYTE_RATE,
    "consume": QuotaKey.CONSUMER_BYTE_RATE,
    "requests": QuotaKey.REQUEST_PERCENTAGE,
    "mutations": QuotaKey.CONTROLLER_MUTATION_RATE,
    "connections": QuotaKey.CONNECTION_CREATION_RATE,
}
_BYTE_RATES: Final = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE)
_BYTES: Final = re.compile(r"(\d{1,15}(?:\.\d{1,6})?) ?([kKMGT]?i?)B?(?:/s)?")
_DECIMAL: Final = {unit: 1000 ** (number + 1) for number, unit in enumerate("kMGT")}
_BINARY: Final = {f"{unit}i": 1024 ** (number + 1) for number, unit in enumerate("kMGT")}
_UNITS: Final = {"": 1, **_DECIMAL, **_BINARY}
_COUNT: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(?:/s)?")
_PERCENT: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ?%?")


def limits_of(texts: Mapping[str, str | None], entity: QuotaEntity) -> dict[str, float | None]:
    """By Kafka's keys, from options by their names. Raises CommandFailed."""
    values: dict[str, float | None] = {}
    for option, text in texts.items():
        if text is None:
            continue
        value = limit_of(option, text)
        try:
            values[check_quota(entity, OPTIONS[option], value)] = value
        except RequestError as error:
            raise CommandFailed(f"--{option} {text}: {error.message}", exit_code=2) from None
    if not values:
        raise CommandFailed("Which limit?", f"Give one of: --{', --'.join(OPTIONS)}.", exit_code=2)
    return values


def limit_of(option: str, text: str) -> float:
    """Raises CommandFailed."""
    key = OPTIONS[option]
    if key in _BYTE_RATES:
        match = _BYTES.fullmatch(text.strip())
        size = match and _UNITS.get(match[2].replace("K", "k"))
        if match is not None and size is not None:
            return float(int(float(match[1]) * size))
        form = "a size per second, such as 10MB/s (10,000,000 bytes), 512KiB/s or 4096"
    else:
        is_percent = key is QuotaKey.REQUEST_PERCENTAGE
        match = (_PERCENT if is_percent else _COUNT).fullmatch(text.strip())
        if match is not None:
            return float(match[1])
        form = "a percentage, such as 50%" if is_percent else "a number per second, such as 5/s"
    raise CommandFailed(f"--{option} {text!r} is not {form}.", exit_code=2)


def limit_word(key: str) -> str:
    """As the option is called; Kafka's word, where there is none."""
    return next((option for option, each in OPTIONS.items() if each == key), key)


def limit_text(key: str, value: float | None) -> str:
    """So that it can be typed again: with the decimal units of the options, and exact."""
    if value is None:
        return "-"
    if key in _BYTE_RATES:
        return f"{_size(value)}/s"
    return f"{value:g}%" if key == QuotaKey.REQUEST_PERCENTAGE else f"{value:g}/s"


def rate_text(key: str, value: float) -> str:
    """What is used, about: three digits of it."""
    if key not in _BYTE_RATES:
        return f"{value:.3g}%" if key == QuotaKey.REQUEST_PERCENTAGE else f"{value:.3g}/s"
    for unit, size in reversed(_DECIMAL.items()):
        if value >= size:
            return f"{value / size:.3g}{unit}B/s"
    return f"{value:.0f}B/s"


def _size(value: float) -> str:
    for unit, size in reversed(_DECIMAL.items()):
        if value >= size and value * 1000 % size == 0:
            return f"{value / size:.3f}".rstrip("0").rstrip(".") + f"{unit}B"
    return f"{value:.0f}B"
