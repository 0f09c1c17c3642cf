"""Redacts secrets in text that is about to be shown: URLs, settings, error messages of other libraries. And makes what
strangers wrote fit to be shown.

When in doubt it hides too much. User names go too, since people paste passwords there.

The text may be anything, such as a message that a handler's error quotes, and no other Python thread runs while an
expression is matched. So every expression takes time in proportion to the text, and of a long text only the beginning
is looked at and kept.
"""

from __future__ import annotations

import re
import traceback
from pathlib import Path

MASK = "***"

MOST = 20_000
"""Characters kept of a text."""

MOST_OF_ERROR = 4_000
"""Characters kept of each exception's text in a traceback, so that what it led to is shown as well."""

MOST_FRAMES = 50
"""Frames shown of each exception, those nearest to the error."""

# Everything between "://" and the last "@" before a blank or quote: passwords may contain unescaped "@", "/", ":" and
# "#". What has no "@" is matched as well, or the search would begin again at each "://" in it.
_ADDRESS = re.compile(r"://[^\s'\"<>`]*")

# If the whole text is one URL, its password may even contain blanks and quotes.
_LONE_URL = re.compile(r"\A(\s*[A-Za-z][A-Za-z0-9+.-]*://).*@", re.DOTALL)

# password=… in a query, keyword argument, mapping's repr or configuration line. A quote that nothing closes hides the
# rest of the text. What follows an "&" and has no value belongs to it: that was not percent-encoded. A token alone is one
# of ours, and no secret.
_NAMED = re.compile(
    r"""(?isx)
    ( (?: password | passwd | passphrase | pwd | secret | secret[_-]?(?:access[_-]?)?key | (?:api|private)[_-]?key
        | (?<=[_-]) token | (?<![a-z]) (?: pass | sig | signature | authorization ) ) \b ['"]? \s* [=:] \s* )
    (?: [bfru]{0,2} (?: ' [^'\\]* (?: \\ .? [^'\\]* )* (?: ' | \Z ) | " [^"\\]* (?: \\ .? [^"\\]* )* (?: " | \Z ) )
      | (?: (?: basic | bearer ) \s+ )? [^\s&;,)\]}'"]+ (?: & [^\s&;,)\]}'"=]*+ =*+ (?! [^\s&;,)\]}'"=] ) )* )
    """
)

_BEARER = re.compile(r"(?i)\b(bearer\s+)[\w.~+/=-]*\d[\w.~+/=-]*")

# user:password@host, as people write it without a scheme.
_PAIR = re.compile(r"(?<=\w):[^\s:/@'\"<>`]+@(?=\w)")


def redact(text: str, most: int = MOST) -> str:
    """Returns the text with every secret replaced by ``***``. A URL keeps its scheme, host, port and path.

    Of a text longer than `most` characters the beginning is returned, and how much is left out. The result can be
    encoded as UTF-8, as log files and headers need it.
    """
    if len(text) <= most:
        return _encodable(_without_secrets(text))
    # An "@" in place of the rest has the user part of a URL hidden that was cut in two.
    beginning = _without_secrets(f"{text[:most]}@").removesuffix("@")
    return f"{_encodable(beginning)}… (characters left out: {len(text) - most})"


def has_stray_at(url: str) -> bool:
    """Whether an "@" comes after the user and the hosts of a URL: then a "/", "?" or "#" of a password was probably not
    percent-encoded, and parts of the password would be taken for a host, a path or an option, and shown.
    """
    _, *rest = re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)
    return "@" in "".join(rest)


def printable(text: str | bytes) -> str:
    """Returns what others wrote as one line for a terminal, a log or a report. What is not UTF-8, a line break, and what
    would steer a terminal are shown with a backslash.
    """
    shown = text if isinstance(text, str) else text.decode(errors="backslashreplace")
    if shown.isprintable():
        return shown
    return "".join(it if it.isprintable() else it.encode("unicode_escape").decode() for it in shown)


def _encodable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def _without_secrets(text: str) -> str:
    if "://" in text:
        text = _LONE_URL.sub(rf"\1{MASK}@", text)
        text = _ADDRESS.sub(_without_user, text)
    text = _BEARER.sub(rf"\1{MASK}", _NAMED.sub(rf"\1{MASK}", text))
    return _PAIR.sub(f":{MASK}@", text)


def _without_user(address: re.Match[str]) -> str:
    _, at, place = address[0].rpartition("@")
    return f"://{MASK}@{place}" if at else address[0]


def redacted_traceback(error: BaseException) -> str:
    """Returns the traceback as Python prints it, with its causes, without secrets. What is very long is shortened."""
    try:
        parts = traceback.format_exception(error, limit=-MOST_FRAMES)
    except Exception:  # noqa: BLE001 -- Python asks an exception whether it is true, and for more, and it may refuse
        parts = [*traceback.format_tb(error.__traceback__, -MOST_FRAMES), f"{type(error).__name__}\n"]
    short = (it if len(it) <= MOST_OF_ERROR else f"{redact(it, MOST_OF_ERROR)}\n" for it in parts)
    return redact("".join(short)).rstrip("\n")


def raised_at(error: BaseException) -> str:
    """The three innermost places, for a failure of our own whose text may quote anything."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return " from ".join(f"{Path(it.filename).name}:{it.lineno}" for it in reversed(frames))
