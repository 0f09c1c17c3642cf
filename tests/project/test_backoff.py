"""Pauses between attempts."""

from cobalance.backoff import Backoff


def test_pauses_double_up_to_the_longest_however_often_it_fails() -> None:
    backoff = Backoff(0.1, 5.0)
    assert [backoff.pause(failures) for failures in (1, 2, 3, 7)] == [0.1, 0.2, 0.4, 5.0]
    assert backoff.pause(100_000) == 5.0
