"""How the clients of a run get in: the same way, as each of three libraries takes it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwater.client.security_options import ClientSecurity
from headwater.client.settings import tls_context


@dataclass(frozen=True, slots=True)
class WayIn:
    bootstrap: str
    security: ClientSecurity | None = None
    """None: without TLS and login."""

    @property
    def confluent(self) -> Mapping[str, Any]:
        return {"bootstrap.servers": self.bootstrap, **(self.security.options() if self.security is not None else {})}

    @property
    def aiokafka(self) -> Mapping[str, Any]:
        return {"bootstrap_servers": self.bootstrap, **self._python_options()}

    @property
    def kafka_python(self) -> Mapping[str, Any]:
        return {"bootstrap_servers": self.bootstrap.split(","), **self._python_options()}

    def _python_options(self) -> Mapping[str, Any]:
        if self.security is None:
            return {}
        options: dict[str, Any] = {"security_protocol": self.security.protocol}
        if self.security.tls is not None:
            options["ssl_context"] = tls_context(self.security.tls)
        if self.security.sasl is not None:
            options |= {
                "sasl_mechanism": self.security.sasl.mechanism.value,
                "sasl_plain_username": self.security.sasl.user,
                "sasl_plain_password": self.security.sasl.password,
            }
        return options
