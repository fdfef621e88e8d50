"""The user that the gateway in a broker's process logs in as, on this node and on others: `__gateway`.

Its password follows from the secret of the cluster. So every node can check it, none has to keep it, and no client can
have the name: names that begin with two underscores are not given to users.
"""

import base64
import hmac
from typing import Final

from headwater.security.scram import MIN_ITERATIONS, ScramCredential, ScramMechanism

GATEWAY_USER: Final = "__gateway"
_SALT_BYTES: Final = 16


class GatewayUser:
    def __init__(self, secret: bytes) -> None:
        key = hmac.digest(secret, b"headwater: gateway", "sha256")
        self.password: Final = base64.b64encode(key).decode()
        self._salt = hmac.digest(secret, b"headwater: salt of the gateway", "sha256")[:_SALT_BYTES]
        self._credentials: dict[ScramMechanism, ScramCredential] = {}

    def credential(self, mechanism: ScramMechanism) -> ScramCredential:
        """Computed when it is first asked for. A password with 256 random bits needs no more iterations than clients
        ask for."""
        credential = self._credentials.get(mechanism)
        if credential is None:
            credential = ScramCredential.of_password(mechanism, self.password, self._salt, MIN_ITERATIONS)
            self._credentials[mechanism] = credential
        return credential
