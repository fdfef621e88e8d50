"""A receiver, and what its answers mean.

    2xx          taken
    410          gone for good: the subscription is not pushed any more
    429, 503     not now; Retry-After is heeded
    other        failed, redirects included: they are not followed, because their targets are not checked

The connections are kept, no more than may be in use at once. Each receiver has its own: a slow one holds up no other.
"""

import time
from email.utils import parsedate_to_datetime

import aiohttp

from headwater.gateway.push.machine import Answer, Outcome
from headwater.gateway.push.message import PushRequest
from headwater.gateway.subscriptions.push_settings import PushSettings
from headwater.gateway.subscriptions.webhook_targets import PublicResolver, check_url

MAX_ANSWER_BYTES = 64 * 1024
"""Of a body, which is not used; a connection with more of it is closed."""
KEEP_ALIVE_S = 30.0
LOOK_UP_AGAIN_S = 30
MAX_REASON_CHARS = 200


class Webhook:
    """Raises RefusedTarget when it is made with a URL that it may not have."""

    def __init__(self, settings: PushSettings, *, allows_private: bool) -> None:
        self._url = check_url(settings.url, allows_private=allows_private)
        connector = aiohttp.TCPConnector(
            limit=settings.concurrency,
            resolver=PublicResolver(allows_private=allows_private),
            ttl_dns_cache=LOOK_UP_AGAIN_S,
            keepalive_timeout=KEEP_ALIVE_S,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=settings.timeout_ms / 1000),
            auto_decompress=False,
            trust_env=False,
            max_line_size=8_190,
            max_field_size=8_190,
        )

    async def send(self, request: PushRequest) -> Outcome:
        """Does not raise for anything that a receiver or the network may do."""
        try:
            async with self._session.post(
                self._url, data=request.body, headers=request.headers, allow_redirects=False
            ) as response:
                await response.content.read(MAX_ANSWER_BYTES)
                if not response.content.at_eof():
                    response.close()
                return outcome_of(response.status, response.headers.get("Retry-After"), time.time())
        except TimeoutError:
            return Outcome(Answer.FAILED, "the receiver did not answer in time")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Outcome(Answer.FAILED, f"{type(error).__name__}: {error}"[:MAX_REASON_CHARS])

    async def close(self) -> None:
        await self._session.close()


def outcome_of(status: int, retry_after: str | None, now_s: float) -> Outcome:
    if 200 <= status < 300:
        return Outcome(Answer.TAKEN)
    if status == 410:
        return Outcome(Answer.GONE, "the receiver answered 410 Gone")
    after_s = _seconds(retry_after, now_s) if status in (429, 503) and retry_after else None
    return Outcome(Answer.FAILED, f"the receiver answered {status}", after_s)


def _seconds(retry_after: str, now_s: float) -> float | None:
    """Of seconds or a date (RFC 9110, 10.2.3); None for anything else."""
    text = retry_after.strip()
    if text.isascii() and text.isdigit() and len(text) <= 9:
        return float(text)
    try:
        return max(parsedate_to_datetime(text).timestamp() - now_s, 0.0)
    except (ValueError, OverflowError):
        return None
