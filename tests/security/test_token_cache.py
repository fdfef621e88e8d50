import tracemalloc

from headwater.security.token_cache import MAX_TOKENS, TokenCache
from headwater.security.token_identity import TokenIdentity


def test_a_token_is_known_until_it_expires() -> None:
    cache = TokenCache()
    cache.add("token", TokenIdentity("alice", 100))
    assert cache.find("token", 99.9) == TokenIdentity("alice", 100)
    assert cache.find("token", 100) is None
    assert len(cache) == 0
    assert cache.find("token", 99.9) is None


def test_another_token_is_not_known() -> None:
    cache = TokenCache()
    cache.add("token", TokenIdentity("alice", 100))
    for each in ("", "tokem", "token ", "\ud800"):
        assert cache.find(each, 0) is None


def test_a_new_key_set_empties_the_cache() -> None:
    cache = TokenCache()
    cache.add("token", TokenIdentity("alice", 100))
    cache.clear()
    assert cache.find("token", 0) is None


def test_the_cache_has_a_limit_and_forgets_the_oldest() -> None:
    cache = TokenCache(max_tokens=3)
    for number in range(5):
        cache.add(f"token{number}", TokenIdentity("alice", 100))
    assert [cache.find(f"token{number}", 0) is not None for number in range(5)] == [False, False, True, True, True]


def test_long_tokens_take_no_more_memory_than_short_ones() -> None:
    cache = TokenCache()
    tracemalloc.start()
    try:
        for number in range(MAX_TOKENS + 1000):
            cache.add(f"{number}{'x' * 1000}", TokenIdentity("alice", 100))
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(cache) == MAX_TOKENS
    assert used < 4 * 1024 * 1024
