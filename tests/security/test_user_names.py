import pytest

from headwater.security.user_names import UnacceptableUserName, check_principal_name, check_user_name


@pytest.mark.parametrize(
    "name", ["a", "alice", "jörg", "日本", "a b", "_x", "a*", "User:alice", "anonymous", "x" * 128]
)
def test_a_name_that_every_client_can_send_is_accepted(name: str) -> None:
    check_user_name(name)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("", "1 to 128"), ("x" * 129, "1 to 128"), ("a\nb", "printable"), ("a\0", "printable"), ("a\x7f", "printable"),
        ("a\u202eb", "printable"), ("a\u2028", "printable"), ("a\ud800", "printable"), ("a\xa0b", "printable"),
        ("*", "choose another"), ("ANONYMOUS", "choose another"), ("__gateway", "choose another"), ("__",
        "choose another"),
        ("a,b", "--any-name"), ("a=b", "--any-name"),
    ],
)  # fmt: skip
def test_another_name_is_refused_with_what_to_do(name: str, advice: str) -> None:
    with pytest.raises(UnacceptableUserName, match=advice):
        check_user_name(name)


def test_any_name_allows_commas_and_equals_signs_and_nothing_else() -> None:
    check_user_name("CN=a,OU=b", is_any_name=True)
    for name in ("*", "ANONYMOUS", "__a", "a\n", ""):
        with pytest.raises(UnacceptableUserName):
            check_user_name(name, is_any_name=True)


def test_a_principal_that_others_name_may_be_longer() -> None:
    check_principal_name("auth0|" + "x" * 250)
    with pytest.raises(UnacceptableUserName):
        check_principal_name("x" * 257)
