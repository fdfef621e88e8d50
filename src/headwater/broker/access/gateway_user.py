"""The user that the gateway in a broker's process logs in as, on this node and on others: `__gateway`.

Its password follows from the secret of the cluster. So every node can check it, none has to keep it, and no client can
have the name: names that begin with two underscores are not given to users. While the secret is being replaced the
passwords of both are right: gateways take the new one at different moments.
"""

import base64
import hmac
from dataclasses import replace
from typing import Final

from headwater.peers.cluster_secrets import ClusterSecrets
from headwater.security.scram import MIN_ITERATIONS, ScramCredential, ScramMechanism

GATEWAY_USER: Final = "__gateway"
_SALT: Final = b"headwater gateway"
"""The same for every password: a salt is sent before it is known which of them the client has. Passwords of 256 random
bits need none."""


class GatewayUser:
    def __init__(self, secrets: ClusterSecrets) -> None:
        self.secrets: Final = secrets
        self._credentials: dict[tuple[bytes, ScramMechanism], ScramCredential] = {}
        secrets.watchers.append(self._credentials.clear)

    @property
    def password(self) -> str:
        return _password(self.secrets.current)

    def credential(self, mechanism: ScramMechanism) -> ScramCredential:
        first, *others = [self._credential(secret, mechanism) for secret in self.secrets.accepted]
        return replace(first, also=others[0]) if others else first

    def _credential(self, secret: bytes, mechanism: ScramMechanism) -> ScramCredential:
        """Computed when it is first asked for. A password with 256 random bits needs no more iterations than clients
        ask for."""
        credential = self._credentials.get((secret, mechanism))
        if credential is None:
            credential = ScramCredential.of_password(mechanism, _password(secret), _SALT, MIN_ITERATIONS)
            self._credentials[secret, mechanism] = credential
        return credential


def _password(secret: bytes) -> str:
    return base64.b64encode(hmac.digest(secret, b"headwater: gateway", "sha256")).decode()
