"""All shapes of requests."""

from typing import Final

from tests.broker.access.matrix.case import APIS, Case
from tests.broker.access.matrix.cases import (
    cluster,
    groups,
    quotas,
    records,
    settings,
    share_groups,
    topics,
    transactions,
)

_ALL: Final[tuple[Case, ...]] = (
    *records.CASES,
    *topics.CASES,
    *settings.CASES,
    *groups.CASES,
    *share_groups.CASES,
    *transactions.CASES,
    *cluster.CASES,
    *quotas.CASES,
)
CASES: Final = tuple(case for case in _ALL if case.api_key in APIS)
"""Of the APIs that are served."""
