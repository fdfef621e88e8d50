"""What a metadata URL says without being opened."""

import pytest

from headwater.metadata.url_text import unencrypted_hosts, without_login


@pytest.mark.parametrize(
    ("url", "hosts", "shown"),
    [
        ("sqlite:/data/metadata.db", (), "sqlite:/data/metadata.db"),
        ("etcd://a:2379,b/x", ("a", "b"), "etcd://a:2379,b/x"),
        ("etcd://user:p@ss@a:2379/x", ("a",), "etcd://...@a:2379/x"),
        ("etcds://user:hush@a:2379/x?ca=f", (), "etcds://...@a:2379/x?ca=f"),
        ("zookeeper://[2001:db8::1]:2181,[::1]/r", ("2001:db8::1", "::1"), "zookeeper://[2001:db8::1]:2181,[::1]/r"),
        ("", (), ""),
        ("etcd://", (), "etcd://"),
    ],
)
def test_hosts_without_tls_are_named_and_logins_are_not(url: str, hosts: tuple[str, ...], shown: str) -> None:
    assert unencrypted_hosts(url) == hosts
    assert without_login(url) == shown
