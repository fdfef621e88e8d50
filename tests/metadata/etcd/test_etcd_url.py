"""What an etcd URL says, and how a wrong one is answered."""

from pathlib import Path

import pytest

from headwater.metadata.etcd.url import MAX_ENDPOINTS, MAX_FILE_BYTES, EtcdAddress, EtcdTls


def test_a_url_names_endpoints_and_a_prefix() -> None:
    assert EtcdAddress.parse("etcd://h1:2379,h2:12379/team/a") == EtcdAddress(("h1:2379", "h2:12379"), "team/a")


def test_port_and_prefix_have_defaults() -> None:
    assert EtcdAddress.parse("etcd://h1,10.0.0.2") == EtcdAddress(("h1:2379", "10.0.0.2:2379"), "headwater")
    assert EtcdAddress.parse("etcd://h1/").prefix == "headwater"


def test_an_ipv6_address_stands_in_brackets() -> None:
    assert EtcdAddress.parse("etcd://[::1]:2379,[fe80::2]").endpoints == ("[::1]:2379", "[fe80::2]:2379")


def test_an_endpoint_that_is_named_twice_is_one() -> None:
    assert EtcdAddress.parse("etcd://h1:2379,h1").endpoints == ("h1:2379",)


def test_user_and_password_are_percent_decoded_and_the_password_is_not_shown() -> None:
    address = EtcdAddress.parse("etcd://us%40er:p%2Fw%3A@h1")
    assert (address.user, address.password) == ("us@er", "p/w:")
    assert "p/w" not in repr(address) + str(address)


def test_tls_reads_the_files_that_the_url_names(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(f"-----BEGIN {name}-----")
    url = f"etcds://h1?ca={tmp_path}/ca&cert={tmp_path}/cert&key={tmp_path}/key"
    address = EtcdAddress.parse(url)
    assert address.tls == EtcdTls(b"-----BEGIN ca-----", b"-----BEGIN cert-----", b"-----BEGIN key-----")
    assert "BEGIN key" not in repr(address)
    assert EtcdAddress.parse("etcds://h1").tls == EtcdTls()
    assert EtcdAddress.parse("etcd://h1").tls is None


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("etcd:h1:2379", "looks like etcd://HOST:PORT"),
        ("etcd://", "not HOST:PORT"),
        ("etcd://h1:2379,", "not HOST:PORT"),
        ("etcd://h1:0", "not HOST:PORT"),
        ("etcd://h1:65536", "not HOST:PORT"),
        ("etcd://h1:port", "not HOST:PORT"),
        ("etcd://::1:2379", "not HOST:PORT"),
        ("etcd://h 1", "not HOST:PORT"),
        ("etcd://h1/a//b", "prefix"),
        ("etcd://h1/a/../b", "prefix"),
        ("etcd://h1/" + "x" * 600, "prefix"),
        ("etcd://user@h1", "USER:PASSWORD"),
        ("etcd://:secret@h1", "USER:PASSWORD"),
        ("etcd://u:%ff@h1", "decode"),
        ("etcd://h1?ca=x", "only etcds://"),
        ("etcds://h1?cA=x", "there are ca, cert and key"),
        ("etcds://h1?ca=x&ca=y", "each once"),
        ("etcds://h1?ca=", "with a file"),
        ("etcds://h1?cert=x", "both cert and key"),
        ("etcds://h1?ca=/no/such/file", "No such file"),
        ("etcds://h1?" + "ca=x&" * 50, "fields"),
        ("etcd://" + ",".join(f"h{n}" for n in range(MAX_ENDPOINTS + 1)), f"at most {MAX_ENDPOINTS}"),
    ],
)
def test_a_wrong_url_is_refused_with_what_is_wrong(url: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as refused:
        EtcdAddress.parse(url)
    assert "secret" not in str(refused.value)


def test_a_file_that_holds_no_certificate_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"hello", b"-----BEGIN x" + bytes(MAX_FILE_BYTES)):
        (tmp_path / "ca").write_bytes(content)
        with pytest.raises(ValueError, match="no PEM file"):
            EtcdAddress.parse(f"etcds://h1?ca={tmp_path}/ca")
