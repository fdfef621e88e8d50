"""URLs of ZooKeeper: what they say, and what is wrong with them."""

from pathlib import Path

import pytest

from headwater.metadata.zookeeper.url import ZookeeperAddress


def test_servers_root_and_login_come_from_the_url() -> None:
    address = ZookeeperAddress.parse("zookeeper://me:p%40ss@a,b:2182,[::1]:2183/team/blue")
    assert address.servers == ("a:2181", "b:2182", "[::1]:2183")
    assert address.root == "/team/blue"
    assert address.login == "me:p@ss"
    assert address.tls is None
    assert "p@ss" not in f"{address} {address!r}"


def test_without_a_root_everything_lies_below_headwater() -> None:
    assert ZookeeperAddress.parse("zookeeper://a").root == "/headwater"
    assert ZookeeperAddress.parse("zookeeper://a/").root == "/headwater"


def test_tls_has_a_scheme_and_options(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("ca", "cert", "key")}
    for file in files.values():
        file.write_text("-----BEGIN CERTIFICATE-----\n")
    query = "&".join(f"{name}={file}" for name, file in files.items())
    tls = ZookeeperAddress.parse(f"zookeepers://a/x?{query}").tls
    assert tls is not None
    assert (tls.ca, tls.certificate, tls.key) == (files["ca"], files["cert"], files["key"])
    assert ZookeeperAddress.parse("zookeepers://a").tls is not None


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("zookeeper:a:2181", "looks like"),
        ("zookeeper://", "not HOST:PORT"),
        ("zookeeper://a,,b", "not HOST:PORT"),
        ("zookeeper://a:0", "not HOST:PORT"),
        ("zookeeper://a:99999", "not HOST:PORT"),
        ("zookeeper://a b", "not HOST:PORT"),
        ("zookeeper://" + ",".join(f"h{number}" for number in range(17)), "at most 16"),
        ("zookeeper://user@a", "USER:PASSWORD"),
        ("zookeeper://a/x//y", "root"),
        ("zookeeper://a/../y", "root"),
        ("zookeeper://a/" + "x" * 201, "at most 200"),
        ("zookeeper://a?ca=x", "only zookeepers://"),
        ("zookeepers://a?colour=red", "colour"),
        ("zookeepers://a?cert=x", "both cert and key"),
        ("zookeepers://a?ca=/no/such/file", "No such file"),
    ],
)
def test_a_wrong_url_says_what_is_wrong(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ZookeeperAddress.parse(url)


def test_a_wrong_url_does_not_repeat_its_password() -> None:
    for url in ("zookeeper://me:secret@a:0", "zookeeper://me:secret@a/x//y", "zookeeper://me:secret@a#"):
        with pytest.raises(ValueError) as caught:
            ZookeeperAddress.parse(url)
        assert "secret" not in str(caught.value)
