"""HTTP in the process of a node goes on when the secret of the cluster is replaced, from which its password follows."""

import json
import secrets
import urllib.request
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from headwater.cli.main import app
from headwater.testing import Broker
from headwater.transport.ports import free_port
from tests.support.eventually import PATIENCE_S, eventually


def topics(http: str, token: Path) -> Any:
    request = urllib.request.Request(
        f"http://{http}/v1/topics", headers={"Authorization": f"Bearer {token.read_text().strip()}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)
    except OSError:
        return None


def test_http_logs_in_by_the_new_secret(tmp_path: Path) -> None:
    secret = tmp_path / "cluster-secret"
    secret.touch(0o600)
    secret.write_text(secrets.token_hex(32))
    metadata, http = f"sqlite:{tmp_path / 'metadata.db'}", f"127.0.0.1:{free_port()}"
    member: dict[str, Any] = {"metadata": metadata, "peer_listen": "127.0.0.1:0", "cluster_secret_file": secret}
    with Broker(subprocess=True, secure=True, http=http, **member) as broker:
        token = broker.data_dir / "http-token"
        eventually(lambda: topics(http, token) is not None, "HTTP serves")
        done = CliRunner().invoke(app, ["cluster", "rotate-secret", "--metadata", metadata, "--file", str(secret)])
        assert done.exit_code == 0, done.output
        eventually(lambda: "http_restarted" in broker.log, "HTTP has the new password")
        eventually(lambda: "gateway_password_replaced" in broker.log, "what the old password opened is closed")
        eventually(lambda: topics(http, token) is not None, "HTTP serves again")
        assert "authentication_failed" not in broker.log
