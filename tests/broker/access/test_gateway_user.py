"""The login of the gateway while the secret that it follows from is replaced."""

import pytest

from headwater.broker.access.gateway_user import GATEWAY_USER, GatewayUser
from headwater.peers.cluster_secrets import ClusterSecrets
from headwater.security.login_errors import LoginFailed
from headwater.security.sasl_client import PasswordLogin, SaslClient
from headwater.security.scram import InventedCredentials, ScramMechanism
from headwater.security.scram_server import InvalidProof, ScramServer

OLD, NEW, OTHER = (letter * 32 for letter in (b"o", b"n", b"x"))


def log_in(password: str, user: GatewayUser, mechanism: ScramMechanism) -> bool:
    """Whether both sides are satisfied. Raises InvalidProof."""
    server = ScramServer(
        mechanism, lambda name, kind: user.credential(kind), InventedCredentials(b"k" * 32), "nonce-of-the-server"
    )
    client = SaslClient(mechanism.sasl, PasswordLogin(GATEWAY_USER, password))
    steps = client.tokens(b"nonce of the client")
    message = next(steps)
    try:
        while True:
            message = steps.send(server.answer(message))
    except StopIteration:
        return server.user == GATEWAY_USER


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_both_passwords_are_right_while_there_are_two_secrets(mechanism: ScramMechanism) -> None:
    secrets = ClusterSecrets(OLD)
    user = GatewayUser(secrets)
    old, new = user.password, GatewayUser(ClusterSecrets(NEW)).password
    for accepted in ((OLD, NEW), (NEW, OLD)):
        secrets.replace(accepted)
        assert log_in(old, user, mechanism)
        assert log_in(new, user, mechanism)
    assert user.password == new
    secrets.replace((NEW,))
    assert log_in(new, user, mechanism)
    for wrong in (old, GatewayUser(ClusterSecrets(OTHER)).password):
        with pytest.raises((InvalidProof, LoginFailed)):
            log_in(wrong, user, mechanism)
