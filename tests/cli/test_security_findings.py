"""What `headwater security check` finds between nodes, and on the machine of one."""

from pathlib import Path

from headwater.broker.settings.broker_config import BrokerConfig
from headwater.cli.security.authority import Authority
from headwater.cli.security.findings import findings


def test_what_is_weak_between_nodes_is_found(tmp_path: Path) -> None:
    files = Authority.create(tmp_path / "tls", "an authority").issue("node", ["127.0.0.1"])
    secret = tmp_path / "cluster-secret"
    secret.touch(0o644)
    secret.write_text("0f" * 32)
    secret.chmod(0o644)
    login = {"name": "clients", "protocol": "SASL_SSL", "listen": "127.0.0.1:9093"}
    config = BrokerConfig.load(
        None,
        data_dir=tmp_path,
        http="off",
        listener=[{**login, "certificate": files.certificate, "key": files.key}],
        super_users=["User:admin"],
        metadata="etcd://user:hush@etcd.example.com:2379",
        insecure_metadata=True,
        peer_listen="0.0.0.0:9192",
        peer_advertise="elsewhere.example.com:9192",
        peer_tls={
            "certificate": files.certificate,
            "key": files.key,
            "ca": tmp_path / "tls" / "ca.pem",
            "mode": "prefer",
        },
        cluster_secret_file=secret,
    )
    found = "\n".join(f"{each.what}: {each.finding}" for each in findings(config))
    assert "the metadata store on etcd.example.com has what users log in with" in found, "though it was accepted"
    assert "other nodes are sent to elsewhere.example.com, which the certificate is not for" in found
    assert 'nodes without TLS are let in (mode = "prefer")' in found
    assert f"{secret}: others on this machine may read it" in found
    assert "hush" not in found


def test_http_that_asks_for_no_token_is_found_where_others_are_held_to_bindings(tmp_path: Path) -> None:
    token = tmp_path / "http-token"
    token.touch(0o600)
    token.write_text("a" * 32)

    def found(**config: object) -> bool:
        loaded = BrokerConfig.load(None, data_dir=tmp_path, **config)
        return any("every program of this machine" in each.finding for each in findings(loaded))

    guarded = {"authorization": "on", "super_users": ["User:admin"]}
    assert found(**guarded) and found(**{**guarded, "authorization": "observe"})
    assert not found(**guarded, http_token_file=token)
    assert not found(**guarded, http="off")
    assert not found()
