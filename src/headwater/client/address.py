"""Where a broker listens, and the list of brokers that a client is given to begin with."""

from typing import NamedTuple

MAX_PORT = 65_535


class InvalidAddress(ValueError):
    """The text is not a list of HOST:PORT."""


class BrokerAddress(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(text: str) -> tuple[BrokerAddress, ...]:
    """`host:port,host:port`. Raises InvalidAddress, with the part that is none."""
    return tuple(_address(part.strip()) for part in text.split(","))


def _address(text: str) -> BrokerAddress:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > MAX_PORT:
        raise InvalidAddress(f"{text!r} is not HOST:PORT")
    return BrokerAddress(host.strip("[]"), int(port))
