"""Secrets are hidden, and everything else stays readable."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cobalance.redact import printable, redact, redacted_traceback

ORDINARY = "a word, and another one; "
SIZE = 8_000
"""Characters: few enough for an expression that goes over them again and again to be noticed soon, and not for ever."""

TIMES_ORDINARY = 40
"""So many times as long as with ordinary words is a fault; going over all of the text at each character takes thousands."""

PIECES = ["a", "-", ".", "://", "@", "'", '"', "=", " ", ":", "\\", "password"]
"""What the expressions look for."""

STARTS = ["", "http://", "password=", "password='", 'password="']
REPEATED = [*PIECES, *map("".join, itertools.permutations(PIECES, 2)), "ab12-"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://:s3cret@host:6379/0", "redis://***@host:6379/0"),
        ("redis://user:s3cret@host", "redis://***@host"),
        ("amqp://guest:s3cret@host:5672/%2F", "amqp://***@host:5672/%2F"),
        ("redis://s3cret@host", "redis://***@host"),
        ("redis://:s3c@re/t#?@host/1", "redis://***@host/1"),
        ("redis://:s3c ret'\"@host/1", "redis://***@host/1"),
        ("rediss://host/0?password=s3cret&db=1", "rediss://host/0?password=***&db=1"),
        ("rediss://host/0?password=ab&s3cret==", "rediss://host/0?password=***"),
        ("redis://host?password=ab&s3cret&db=1, or none", "redis://host?password=***&db=1, or none"),
        ("rediss://host?ssl_password=s3cret", "rediss://host?ssl_password=***"),
        (
            "cannot reach 'amqp://u:s3cret@h/' and redis://:s3cret@h:1, giving up",
            "cannot reach 'amqp://***@h/' and redis://***@h:1, giving up",
        ),
        ("{'host': 'h', 'password': 's3cret, really', 'db': 0}", "{'host': 'h', 'password': ***, 'db': 0}"),
        ("Connection(password='s3cret',db=0)", "Connection(password=***,db=0)"),
        ("requirepass_password: s3cret", "requirepass_password: ***"),
        ("my-db_password='s3cret' db-secret=s3cret", "my-db_password=*** db-secret=***"),
        ("2amqp://u:s3cret@h", "2amqp://***@h"),
        ('password=b"it\'s s3cret", port=1', "password=***, port=1"),
        (repr({"password": "'\"s3cret"}), "{'password': ***}"),
        ("cut short: password='s3cret, rea", "cut short: password=***"),
        ("https://h/?access_token=s3cret&sig=s3cret", "https://h/?access_token=***&sig=***"),
        ("pass=s3cret, secret_key: s3cret", "pass=***, secret_key: ***"),
        ("aws_secret_access_key=s3cret private-key=s3cret", "aws_secret_access_key=*** private-key=***"),
        ("{'Authorization': 'Basic czNjcmV0'}", "{'Authorization': ***}"),
        ("Authorization: Basic czNjcmV0 was refused", "Authorization: *** was refused"),
        ("sent Bearer s3cret.s3cret", "sent Bearer ***"),
        ("cannot reach user:s3cret@host:5672", "cannot reach user:***@host:5672"),
    ],
)
def test_secrets_are_hidden(text: str, shown: str) -> None:
    """A secret written in any known way is replaced, and the rest stays."""
    assert redact(text) == shown


def test_what_is_no_valid_unicode_is_shown_as_python_writes_it() -> None:
    """A log file and a header take UTF-8, and half of a surrogate pair is not valid."""
    assert redact("no customer \ud800, redis://:s3cret@h") == "no customer \\ud800, redis://***@h"
    assert redacted_traceback(ValueError("no customer \ud800")) == "ValueError: no customer \\ud800"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "redis://host:6379/0",
        "unix:///var/run/redis.sock?db=1",
        "Redis at redis://host refused the user name or password; check those in the URL.",
        "token 1795198568497123 of resource orders-0, token=5",
        "HTTP Basic authentication; a bearer of news; bypass=1",
        "at 12:30 in a.py:17, mail a@example.org",
        "mail to someone@example.org about http://example.org",
    ],
)
def test_what_holds_no_secret_stays(text: str) -> None:
    """Ordinary messages stay unchanged."""
    assert redact(text) == text


@given(
    secret=st.text(min_size=8, max_size=20).filter(lambda text: text.strip("@*") == text and "***" not in text),
    user=st.sampled_from(["", "user"]),
    scheme=st.sampled_from(["redis", "rediss", "amqp", "amqps", "https"]),
)
def test_no_password_of_a_lone_url_survives(secret: str, user: str, scheme: str) -> None:
    """Whatever the characters of the password, nothing of it is left when the text is the URL itself."""
    assert redact(f"{scheme}://{user}:{secret}@host/0") == f"{scheme}://***@host/0"


@given(
    secret=st.text(st.characters(exclude_categories=["Z", "C"], exclude_characters="'\"<>`"), min_size=1, max_size=20)
)
def test_no_password_of_a_url_in_a_sentence_survives(secret: str) -> None:
    """In a sentence a password ends at the first blank or quote, which a URL cannot hold."""
    assert redact(f"cannot connect to redis://:{secret}@host/0 today") == "cannot connect to redis://***@host/0 today"


# -- long texts --------------------------------------------------------------------------------------------------------


def cost(text: str) -> float:
    """Seconds of this thread, the least of three."""

    def once() -> float:
        before = time.thread_time()
        redact(text)
        return time.thread_time() - before

    return min(once() for _ in range(3))


def filled(unit: str, size: int, start: str = "") -> str:
    """The unit again and again, up to this size."""
    return (start + unit * (size // len(unit) + 1))[:size]


@pytest.mark.parametrize("start", STARTS)
def test_no_text_takes_much_longer_than_ordinary_words(start: str) -> None:
    """A handler's error may quote any message, and nothing else runs meanwhile: no heartbeat, either."""
    most = TIMES_ORDINARY * cost(filled(ORDINARY, SIZE))
    for unit in REPEATED:
        assert cost(filled(unit, SIZE, start)) < most, unit


def test_a_huge_text_takes_no_longer_than_a_long_one() -> None:
    """What is left out is not looked at; how much that is, is said."""
    huge = filled(ORDINARY, 100 * SIZE)
    assert cost(huge) < TIMES_ORDINARY / 4 * cost(filled(ORDINARY, SIZE))
    assert redact(huge).startswith(ORDINARY)
    assert redact(huge, 100).endswith(f"… (characters left out: {len(huge) - 100})")


@pytest.mark.parametrize(
    "text",
    [
        "it is amqp://u:s3cret@host, is it not",
        "it has password='s3cret' in it, and more",
        'it has "password": b"s3cret" in it, and more',
        "it has password=s3cret in it, and more",
        "redis://u:what a s3cret this is@host/0 and more",
    ],
)
def test_what_is_left_out_takes_no_part_of_a_secret_out_of_hiding(text: str) -> None:
    """Wherever the text is cut: within the secret, or before that which tells that it is one."""
    for most in range(len(text)):
        shown = redact(text, most).partition("…")[0]
        assert not any(part in shown for part in ("s3", "3c", "cr", "ret", "what", "u:"))


def failed(text: str, cause: BaseException | None = None) -> BaseException:
    """An exception that was raised over another one."""
    try:
        raise ValueError(text) from cause
    except ValueError as error:
        return error


def test_a_traceback_shows_each_of_several_errors_that_quote_long_texts() -> None:
    """With their frames, and without the secrets in what is kept of them."""
    first = failed("first: redis://u:s3cret@h " + "x" * 100_000)
    traced = redacted_traceback(failed("second: password='s3cret " + "y" * 100_000, first))
    assert [line[:18] for line in traced.splitlines() if "Error: " in line] == [
        "ValueError: first:",
        "ValueError: second",
    ]
    assert traced.count("in failed\n") == 2
    assert "s3cret" not in traced
    assert len(traced) < 20_000


def test_a_traceback_of_a_deep_recursion_ends_with_the_error() -> None:
    """Though its frames alone would fill a log line many times over."""

    def odd(depth: int) -> None:
        if depth:
            return even(depth - 1)
        raise ValueError("at last")

    def even(depth: int) -> None:
        return odd(depth - 1)

    with pytest.raises(ValueError, match="at last") as caught:
        odd(400)
    traced = redacted_traceback(caught.value)
    assert traced.endswith("ValueError: at last")
    assert len(traced) < 20_000


def test_a_traceback_can_be_written_whatever_the_error_quotes() -> None:
    """Half a character, as JSON may hold, would make every handler of the log fail."""
    assert redacted_traceback(failed("unknown \ud800")).endswith("ValueError: unknown \\ud800")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("Größe 5 …", "Größe 5 …"),
        ("order\n2026-01-01 ERROR made up", r"order\n2026-01-01 ERROR made up"),
        ("\x1b[2J\x07", r"\x1b[2J\x07"),
        ("\u202eabc\ud800", r"\u202eabc\ud800"),
        ("Größe".encode(), "Größe"),
        (b"caf\xe9\n", r"caf\xe9\n"),
    ],
)
def test_what_strangers_wrote_is_one_line_that_steers_no_terminal(given: str | bytes, shown: str) -> None:
    """Nothing of it gets lost: it is shown with a backslash."""
    assert printable(given) == shown
