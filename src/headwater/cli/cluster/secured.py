"""The files of a local cluster with TLS, logins and access control, beside those of `cluster/files`:

tls/                             an authority, and a certificate for each node (security/authority.py)
cluster-secret                   what nodes prove to each other that they know
clients/                         settings with which the first users log in, for each kind of client
http-token                       what clients of HTTP must bear
node-1/bootstrap-users.json      the first users, taken in by the first start, and removed then

Every node is on this machine, so every certificate names it. `admin` may do everything; so may `console`, as which HTTP
beside the nodes logs in.
"""

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headwater.broker.access import bootstrap_users
from headwater.broker.access.gateway_user import GATEWAY_USER
from headwater.broker.cluster.followed_secrets import SECRET_BYTES, secret_line
from headwater.cli.security.secured_directory import (
    CLIENTS,
    HTTP_TOKEN,
    TLS,
    authority_name,
    client_file,
    write_logins,
    write_private,
)
from headwater.security.principal import Principal

if TYPE_CHECKING:
    from headwater.cli.security.authority import NodeFiles

SECRET: Final = "cluster-secret"
ADMIN: Final = "admin"
CONSOLE: Final = "console"
LISTENER: Final = "clients"


class SecuredCluster:
    """Its files below a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.resolve()

    @property
    def admin_file(self) -> Path:
        """For `--client`."""
        return client_file(self._directory, ADMIN)

    @property
    def console_file(self) -> Path:
        return client_file(self._directory, CONSOLE)

    @property
    def token_file(self) -> Path:
        return self._directory / HTTP_TOKEN

    @property
    def secret_file(self) -> Path:
        return self._directory / SECRET

    @property
    def authority_file(self) -> Path:
        return self._directory / TLS / "ca.pem"

    @property
    def is_there(self) -> bool:
        return (self._directory / CLIENTS).is_dir()

    def write(self, bootstrap: str, first_node: Path) -> None:
        """For a new cluster; `first_node` is the data directory of the node that takes in the users. Raises OSError,
        FileExistsError above all."""
        from headwater.cli.security.authority import Authority

        authority = Authority.create(self._directory / TLS, authority_name())
        write_private(self.secret_file, secret_line(secrets.token_bytes(SECRET_BYTES)) + "\n")
        users = write_logins(self._directory, authority.file, bootstrap, [ADMIN, CONSOLE])
        first_node.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(first_node / bootstrap_users.FILE_NAME, users)

    def settings(self, name: str, address: str, host: str) -> dict[str, Any]:
        """Of the node with this name, whose clients and peers reach it at `host`; `address` has the port, too. Its
        certificate is signed when it has none."""
        files = self._certificate(name, host)
        listener = {
            "name": LISTENER,
            "protocol": "SASL_SSL",
            "listen": address,
            "advertise": address,
            "certificate": files.certificate,
            "key": files.key,
        }
        supers = [Principal.user(each) for each in (ADMIN, CONSOLE, GATEWAY_USER)]
        return {
            "authorization": "on",
            "super_users": [str(each) for each in supers],
            "gateways": [str(Principal.user(CONSOLE))],
            "listener": [listener],
            "peer_tls": {"certificate": files.certificate, "key": files.key, "ca": self.authority_file},
        }

    def _certificate(self, name: str, host: str) -> "NodeFiles":
        from headwater.cli.security.authority import Authority, NodeFiles

        files = NodeFiles(self._directory / TLS / f"{name}.pem", self._directory / TLS / f"{name}.key")
        if files.certificate.exists() and files.key.exists():
            return files
        return Authority.load(self._directory / TLS).issue(name, [host])
