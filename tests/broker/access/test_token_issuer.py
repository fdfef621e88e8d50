"""The keys of an issuer of tokens: fetched from one that does as it should, and from others."""

import asyncio
import base64
import gzip
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater.broker.access import key_fetch, token_issuer
from headwater.broker.access.token_issuer import KeysNotFetched, TokenIssuer
from headwater.broker.settings.oidc_config import read_oidc
from headwater.security.jwt_rules import UnknownTokenKey
from headwater.security.key_schedule import MIN_INTERVAL_S
from headwater.security.key_set import MAX_DOCUMENT_BYTES
from headwater.security.token_identity import InvalidToken
from headwater.testing.fakes.clock import ManualClock
from tests.support.certificates import Authority
from tests.support.effort import amount
from tests.support.eventually import tasks_run, until
from tests.support.identity_provider import KEYS, METADATA, IdentityProvider, Reply, identity_provider
from tests.support.log_lines import own_lines


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with identity_provider() as provider:
        yield provider


class Issuer:
    """With the time of its tokens under control, and its task not begun."""

    def __init__(self, provider: IdentityProvider, **keys: str) -> None:
        self.provider = provider
        self.clock = ManualClock()
        self.tokens = TokenIssuer(read_oidc(provider.config | keys), self.clock)

    def token(self, user: str = "alice", **more: Any) -> str:
        return self.provider.token(user, now_s=self.clock.now_ms() / 1000, **more)

    async def name(self, token: str) -> str:
        return (await self.tokens.identify(token)).name

    @property
    def fetches(self) -> int:
        return self.provider.requests.count(KEYS)

    async def fetch(self) -> bool:
        """Whether the keys could be fetched."""
        failures = self.tokens.failures
        await self.tokens.refresh()
        return self.tokens.failures == failures


@asynccontextmanager
async def running(provider: IdentityProvider, **keys: str) -> AsyncIterator[Issuer]:
    issuer = Issuer(provider, **keys)
    task = asyncio.create_task(issuer.tokens.run())
    try:
        async with asyncio.timeout(60):
            yield issuer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_a_token_is_verified_with_the_keys_that_the_metadata_of_the_issuer_leads_to(
    provider: IdentityProvider, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with running(provider) as issuer:
            assert await issuer.name(issuer.token("größe")) == "größe", "the first login waits for the first keys"
            assert await issuer.name(issuer.token()) == "alice"
            assert provider.requests == [METADATA, KEYS]
            issuer.clock.advance(5)
            assert issuer.tokens.keys_age_s == 5.0
            with pytest.raises(InvalidToken, match="another audience"):
                await issuer.name(issuer.token(aud="payroll"))

    with caplog.at_level("INFO"):
        asyncio.run(main())
    assert any("oidc_keys_fetched" in line and "keys=first" in line for line in own_lines(caplog))


def test_a_configured_url_of_keys_is_asked_and_no_metadata(provider: IdentityProvider) -> None:
    async def main() -> None:
        issuer = Issuer(provider, issuer="any text", jwks_url=provider.issuer + KEYS)
        assert await issuer.fetch()
        assert provider.requests == [KEYS]
        assert await issuer.name(issuer.token(iss="any text")) == "alice"

    asyncio.run(main())


def test_without_keys_no_token_is_believed(provider: IdentityProvider) -> None:
    async def main() -> None:
        provider.replies[KEYS] = Reply(500)
        async with running(provider) as issuer:
            with pytest.raises(KeysNotFetched, match="could not be fetched yet"):
                await issuer.name(issuer.token())
            with pytest.raises(KeysNotFetched):
                await issuer.name(issuer.token())
            assert issuer.tokens.keys_age_s is None
            assert issuer.fetches == issuer.tokens.failures == 1

    asyncio.run(main())


def test_a_broker_whose_issuer_is_away_at_the_start_has_its_keys_soon_after(
    provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.security.key_schedule.FIRST_RETRY_S", 0.01)

    async def main() -> None:
        provider.replies[METADATA] = Reply(503)
        async with running(provider) as issuer:
            await until(lambda: issuer.tokens.failures)
            provider.replies.clear()
            issuer.clock.advance(MIN_INTERVAL_S)
            await until(lambda: issuer.tokens.keys_age_s is not None)
            assert await issuer.name(issuer.token()) == "alice"

    asyncio.run(main())


def test_keys_that_are_rotated_with_an_overlap_refuse_no_token(provider: IdentityProvider) -> None:
    async def main() -> None:
        async with running(provider) as issuer:
            old = issuer.token()
            assert await issuer.name(old) == "alice"
            provider.new_key("second")
            issuer.clock.advance(MIN_INTERVAL_S)
            names = await asyncio.gather(*(issuer.name(issuer.token("bob", kid="second")) for _ in range(20)))
            assert names == ["bob"] * 20
            assert issuer.fetches == 2, "one for all who waited"
            assert await issuer.name(old) == "alice"
            del provider.keys["first"]
            assert await issuer.fetch()
            with pytest.raises(UnknownTokenKey):
                await issuer.name(old)

    asyncio.run(main())


def test_tokens_with_made_up_keys_cause_one_fetch_a_minute_and_others_are_not_disturbed(
    provider: IdentityProvider,
) -> None:
    async def main() -> None:
        async with running(provider) as issuer:
            good = issuer.token()
            assert await issuer.name(good) == "alice"
            _, payload, signature = good.split(".")
            for minute in range(3):
                for number in range(amount(10_000, 300)):
                    kid = f"{minute}-{number}"
                    forged = jwt_head(kid) + f".{payload}.{signature}"
                    with pytest.raises(UnknownTokenKey):
                        await issuer.name(forged)
                    issuer.clock.advance(MIN_INTERVAL_S / amount(10_000, 300) / 2)
                assert issuer.fetches == 1 + minute
                assert await issuer.name(issuer.token()) == "alice"
                issuer.clock.advance(MIN_INTERVAL_S)

    asyncio.run(main())


def jwt_head(kid: str) -> str:
    return base64.urlsafe_b64encode(json.dumps({"alg": "ES256", "kid": kid}).encode()).rstrip(b"=").decode()


def test_keys_are_kept_while_the_issuer_fails(provider: IdentityProvider, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        issuer = Issuer(provider)
        assert await issuer.fetch()
        for reply in (Reply(500), Reply(body=b"{}"), Reply(body=b'{"keys": []}'), Reply(body=b"<html>")):
            provider.replies[KEYS] = reply
            assert not await issuer.fetch()
        assert await issuer.name(issuer.token()) == "alice"
        assert issuer.tokens.failures == 4

    asyncio.run(main())
    lines = [line for line in own_lines(caplog) if "oidc_keys_unavailable" in line]
    assert len(lines) == 4
    assert all("in_force='those before'" in line for line in lines)
    assert "status 500" in lines[0]


LARGE = b"x" * MAX_DOCUMENT_BYTES


@pytest.mark.parametrize(
    ("path", "reply", "reason"),
    [
        (KEYS, Reply(body=LARGE, repeats=4_096), f"more than {MAX_DOCUMENT_BYTES} bytes"),
        (KEYS, Reply(body=gzip.compress(LARGE * 40), headers=(("Content-Encoding", "gzip"),)), "not JSON"),
        (KEYS, Reply(302, headers=(("Location", "http://169.254.169.254/latest/meta-data"),)), "not an https URL"),
        (KEYS, Reply(302, headers=(("Location", "https://169.254.169.254/keys"),)), "another host"),
        (KEYS, Reply(307, headers=(("Location", "//localhost/keys"),)), "another host"),
        (KEYS, Reply(302, headers=(("Location", KEYS),)), "more than 3 redirects"),
        (KEYS, Reply(302), "more than 3 redirects"),
        (KEYS, Reply(204), "status 204"),
        (METADATA, Reply(body=b'{"issuer": "http://127.0.0.1:1", "jwks_uri": "http://127.0.0.1:1/keys"}'), "not that"),
        (METADATA, Reply(body=b"[]"), "not a JSON object"),
        (METADATA, Reply(404), "status 404"),
    ],
)
def test_an_issuer_that_answers_something_else_is_not_followed(
    path: str, reply: Reply, reason: str, provider: IdentityProvider, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        provider.replies[path] = reply
        assert not await Issuer(provider).fetch()

    asyncio.run(main())
    (line,) = own_lines(caplog)
    assert "oidc_keys_unavailable" in line
    assert reason in line


def test_a_redirect_on_the_same_host_is_followed(provider: IdentityProvider) -> None:
    async def main() -> None:
        provider.replies[KEYS] = Reply(302, headers=(("Location", "/moved"),))
        provider.replies["/moved"] = Reply(body=provider.published())
        issuer = Issuer(provider)
        assert await issuer.fetch()
        assert await issuer.name(issuer.token()) == "alice"

    asyncio.run(main())


def test_an_issuer_that_does_not_answer_is_given_up_and_logins_meanwhile_are_bounded(
    provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(key_fetch, "FETCH_TIMEOUT_S", 0.3)
    monkeypatch.setattr(token_issuer, "MAX_WAITING", 3)
    silence = threading.Event()

    async def main() -> None:
        provider.replies[KEYS] = Reply(waits_for=silence)
        async with running(provider) as issuer:
            logins = [asyncio.create_task(issuer.name(issuer.token())) for _ in range(5)]
            await tasks_run()
            assert [login.done() for login in logins] == [False] * 3 + [True] * 2
            outcomes = await asyncio.gather(*logins, return_exceptions=True)
            assert all(isinstance(outcome, KeysNotFetched) for outcome in outcomes)

    try:
        asyncio.run(main())
    finally:
        silence.set()
    assert any("no answer within" in line for line in own_lines(caplog))


def test_an_issuer_that_is_not_there_is_said_to_be_away(caplog: pytest.LogCaptureFixture) -> None:
    with identity_provider() as gone:
        pass
    assert not asyncio.run(Issuer(gone).fetch())
    assert any("ClientConnectorError" in line for line in own_lines(caplog))


def test_the_certificate_of_an_issuer_is_verified(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority.create(tmp_path)
    certificate, key = authority.issue("id", "localhost")

    async def main() -> None:
        with identity_provider(certificate=(certificate, key)) as provider:
            assert provider.issuer.startswith("https://localhost:")
            issuer = Issuer(provider, ca=str(authority.file))
            assert await issuer.fetch()
            assert await issuer.name(issuer.token()) == "alice"
            assert not await Issuer(provider).fetch()
            assert not await Issuer(provider, ca=str(tmp_path / "none.pem")).fetch()

    asyncio.run(main())
    unverified, missing = (line for line in own_lines(caplog) if "oidc_keys_unavailable" in line)
    assert "CERTIFICATE_VERIFY_FAILED" in unverified
    assert "FileNotFoundError" in missing
