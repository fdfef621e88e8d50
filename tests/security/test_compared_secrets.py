"""Secrets are compared in a time that does not tell how much of them is right: `hmac.compare_digest`, never `==`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import headwater

SOURCE = Path(headwater.__file__).parent
SECRETS = frozenset(
    {"proof", "stored_key", "server_key", "client_key", "signature", "password", "secret", "mac", "digest", "salted"}
)
COMPARISONS = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)
ALLOWED = {
    "cli/cluster/secret_rotation.py": "node.secret_ids != ids",
    "cli/renewed_gateway.py": "self._broker.gateway_password != self._password",
    "gateway/subscriptions/push_settings.py": "SECRET in group.withheld",
    "gateway/subscriptions/subscription_api.py": "name != SECRET",
    "pipelines/spec/keys.py": "name.lower().removeprefix('kafka.') in SECRET_OPTIONS",
}
"""Names of settings, numbers of secrets, and a password beside that of before: no stranger has a part in it."""


def test_no_secret_is_compared_by_its_bytes() -> None:
    found = {
        str(path.relative_to(SOURCE)): comparison
        for path in SOURCE.rglob("*.py")
        for comparison in compared_secrets(path.read_text())
    }
    assert found == ALLOWED


def test_a_comparison_of_secrets_is_found() -> None:
    for text in (
        "proof == other",
        "if x.stored_key != y.stored_key: pass",
        "my_password in passwords",
        "f() == mac(x)",
    ):
        assert list(compared_secrets(text)), text
    for text in ("len(proof) == 32", "kind == 'proof'", "compare_digest(proof, other)", "proofs == other"):
        assert not list(compared_secrets(text)), text


def compared_secrets(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Compare) or not any(isinstance(each, COMPARISONS) for each in node.ops):
            continue
        sides = [node.left, *node.comparators]
        if any(map(is_secret, sides)) and not any(isinstance(side, ast.Constant) for side in sides):
            yield ast.unparse(node)


def is_secret(node: ast.expr) -> bool:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            words = name.lower()
            return words in SECRETS or not SECRETS.isdisjoint(words.split("_"))
        case ast.Call(func=function):
            return is_secret(function)
    return False
