from headwater.queues.events import DeadLetterReason, RangeState, StateRange
from headwater.queues.redelivery import after_failure, backoff_ms
from headwater.queues.settings import QueueSettings, RedeliveryBackoff


def test_a_rest_grows_with_the_failures_up_to_its_limit() -> None:
    assert [backoff_ms(RedeliveryBackoff(100, 250), failures) for failures in (1, 2, 3, 10**6)] == [100, 200, 250, 250]


def test_of_a_list_of_rests_the_last_one_repeats() -> None:
    assert [backoff_ms(RedeliveryBackoff(1, 1, (5, 0, 60)), failures) for failures in (1, 2, 3, 4, 99)] == [
        5,
        0,
        60,
        60,
        60,
    ]


def test_without_a_backoff_there_is_no_rest() -> None:
    assert after_failure(QueueSettings(), 3, 4, 1, 1_000) == StateRange(3, 4, RangeState.AVAILABLE, 1, 0)


def test_a_record_rests_only_if_a_consumer_gave_it_back() -> None:
    settings = QueueSettings(backoff=RedeliveryBackoff(100, 100))
    assert after_failure(settings, 3, 4, 1, 1_000).available_at_ms == 1_100
    assert after_failure(settings, 3, 4, 1, None).available_at_ms == 0


def test_the_last_delivery_leads_to_the_dead_letters_if_there_are_any() -> None:
    last = QueueSettings(delivery_count_limit=2)
    assert after_failure(last, 3, 4, 2, None) == StateRange(3, 4, RangeState.ARCHIVED)
    with_letters = QueueSettings(delivery_count_limit=2, dead_letter_topic="dead")
    given_up = StateRange(3, 4, RangeState.ARCHIVING, 2, reason=DeadLetterReason.DELIVERY_LIMIT)
    assert after_failure(with_letters, 3, 4, 2, None) == given_up
