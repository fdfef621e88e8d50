"""Users that a cluster has from its first start on, with one password."""

from pathlib import Path

from headwater.broker.access import bootstrap_users
from headwater.broker.access.user_record import UserRecord
from headwater.security.scram import ScramCredential, ScramMechanism

PASSWORD = "correct horse battery staple"
LISTENER = {"name": "users", "protocol": "SASL_PLAINTEXT", "listen": "127.0.0.1:0", "mechanisms": ["PLAIN"]}
"""That they log in by."""


def write_first_users(data_dir: Path, *names: str) -> None:
    """Of the cluster whose first node has this data directory."""
    credential = ScramCredential.of_password(ScramMechanism.SCRAM_SHA_256, PASSWORD, b"salt", 4096)
    record = UserRecord(credentials={credential.mechanism: credential})
    data_dir.mkdir(parents=True, exist_ok=True)
    (data_dir / bootstrap_users.FILE_NAME).write_text(bootstrap_users.text_of(dict.fromkeys(names, record)))
