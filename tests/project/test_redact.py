"""Secrets are hidden, and everything else stays readable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cobalance.redact import redact


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
        ("rediss://host?ssl_password=s3cret", "rediss://host?ssl_password=***"),
        (
            "cannot reach 'amqp://u:s3cret@h/' and redis://:s3cret@h:1, giving up",
            "cannot reach 'amqp://***@h/' and redis://***@h:1, giving up",
        ),
        ("{'host': 'h', 'password': 's3cret, really', 'db': 0}", "{'host': 'h', 'password': ***, 'db': 0}"),
        ("Connection(password='s3cret',db=0)", "Connection(password=***,db=0)"),
        ("requirepass_password: s3cret", "requirepass_password: ***"),
    ],
)
def test_secrets_are_hidden(text: str, shown: str) -> None:
    """A secret written in any known way is replaced, and the rest stays."""
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "redis://host:6379/0",
        "unix:///var/run/redis.sock?db=1",
        "Redis at redis://host refused the user name or password; check those in the URL.",
        "token 1795198568497123 of resource orders-0, token=5",
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
