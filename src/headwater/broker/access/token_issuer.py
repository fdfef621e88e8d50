"""The issuer whose tokens clients log in with: its keys, fetched in the background, and its tokens, verified.

One task fetches (`run`). A login whose token has an unknown key asks that task to look, if it is time for it, and waits
for the outcome; so do logins that come before the first keys are there. Without keys every token is refused.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Final

from headwater.broker.access.key_fetch import KeyFetch, KeysUnavailable
from headwater.broker.settings.oidc_config import OidcConfig
from headwater.logs.events import log_event
from headwater.model.clock import Clock
from headwater.security.jwt_rules import UnknownTokenKey
from headwater.security.key_schedule import KeySchedule
from headwater.security.token_cache import TokenCache
from headwater.security.token_identity import InvalidToken, TokenIdentity

MAX_WAITING: Final = 1_000
"""Logins that wait for a fetch; beyond that they are refused."""


class KeysNotFetched(InvalidToken):
    """No token can be verified yet."""

    def __init__(self) -> None:
        super().__init__("The keys of its issuer could not be fetched yet; try again soon.")


class TokenIssuer:
    def __init__(self, config: OidcConfig, clock: Clock) -> None:
        self._issuer = config.issuer
        self._rules = config.rules
        self._fetch = KeyFetch(config)
        self._clock = clock
        self._schedule = KeySchedule()
        self._tokens = TokenCache()
        self._is_wanted = asyncio.Event()
        self._is_fetched = asyncio.Event()
        """Another one for each fetch."""
        self._is_fetching = False
        self._waiting = 0

    @property
    def failures(self) -> int:
        """How often the keys could not be fetched."""
        return self._schedule.failures

    @property
    def keys_age_s(self) -> float | None:
        """None before the first success."""
        fetched_at_s = self._schedule.fetched_at_s
        return None if fetched_at_s is None else self._clock.monotonic() - fetched_at_s

    async def identify(self, token: str) -> TokenIdentity:
        """Raises InvalidToken."""
        try:
            return self._verified(token)
        except (UnknownTokenKey, KeysNotFetched):
            if not await self._looked_again():
                raise
        return self._verified(token)

    async def run(self) -> None:
        """Fetch the keys now, and again when it is time. Until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._schedule.wait_s(self._clock.monotonic())):
                    await self._is_wanted.wait()
            self._is_fetching = True
            await self.refresh()
            self._is_fetching = False
            self._is_wanted.clear()
            is_fetched, self._is_fetched = self._is_fetched, asyncio.Event()
            is_fetched.set()

    async def refresh(self) -> None:
        """Fetch the keys. What goes wrong is logged, and the keys before stay in force."""
        schedule = self._schedule
        schedule.begun(self._clock.monotonic())
        try:
            keys = await self._fetch.fetch()
        except KeysUnavailable as error:
            schedule.failed()
            kept = "none" if schedule.keys is None else "those before"
            log_event("oidc_keys_unavailable", logging.WARNING, issuer=self._issuer, reason=str(error), in_force=kept)
            return
        except Exception as error:  # ours, and no reason for a broker to end
            schedule.failed()
            log_event("oidc_refresh_failed", logging.ERROR, error, issuer=self._issuer)
            return
        if schedule.keys is None or schedule.keys.by_kid.keys() != keys.by_kid.keys():
            log_event("oidc_keys_fetched", issuer=self._issuer, keys=",".join(sorted(keys.by_kid))[:500])
        schedule.fetched(keys, self._clock.monotonic())
        self._tokens.clear()

    def _verified(self, token: str) -> TokenIdentity:
        keys, now_s = self._schedule.keys, self._clock.now_ms() / 1000
        if keys is None:
            raise KeysNotFetched
        identity = self._tokens.find(token, now_s)
        if identity is None:
            identity = self._rules.verify(token, keys, now_s)
            self._tokens.add(token, identity)
        return identity

    async def _looked_again(self) -> bool:
        """Whether the keys were fetched since the call. A fetch that is under way counts."""
        if self._waiting >= MAX_WAITING:
            return False
        if not self._is_fetching and not self._is_wanted.is_set():
            if not self._schedule.may_look(self._clock.monotonic()):
                return False
            self._is_wanted.set()
        self._waiting += 1
        try:
            await self._is_fetched.wait()
        finally:
            self._waiting -= 1
        return True
