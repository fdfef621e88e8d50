"""What docs/security.md says that requests need is what they are declared to need."""

from tests.broker.access.access_table import PAGE, section


def test_the_page_says_what_each_request_needs() -> None:
    assert section() in PAGE.read_text(), "out of date: python -m tests.broker.access.access_table"
