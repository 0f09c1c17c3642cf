"""Redacts secrets in text that is about to be shown: URLs, settings, error messages of other libraries.

When in doubt it hides too much. User names go too, since people paste passwords there.
"""

from __future__ import annotations

import re
import traceback

MASK = "***"

# Everything between "scheme://" and the last "@" before a blank or quote: passwords may contain unescaped "@", "/", ":"
# and "#".
_USERINFO = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^\s'\"<>`]*@")

# If the whole text is one URL, its password may even contain blanks and quotes.
_LONE_URL = re.compile(r"\A(\s*[A-Za-z][A-Za-z0-9+.-]*://).*@", re.DOTALL)

# password=… in a query, keyword argument, mapping's repr or configuration line.
_NAMED = re.compile(
    r"""(?ix)
    ( \b [\w-]* (?: password | passwd | passphrase | pwd | secret | api_?key ) \b ['"]? \s* [=:] \s* )
    (?: '[^']*' | "[^"]*" | b'[^']*' | [^\s&;,)\]}'"]+ )
    """
)


def redact(text: str) -> str:
    """Returns the text with every secret replaced by ``***``. A URL keeps its scheme, host, port and path."""
    if "://" in text:
        text = _LONE_URL.sub(rf"\1{MASK}@", text)
        text = _USERINFO.sub(rf"\1{MASK}@", text)
    return _NAMED.sub(rf"\1{MASK}", text)


def redacted_traceback(error: BaseException) -> str:
    """Returns the traceback as Python prints it, with its causes, without secrets."""
    return redact("".join(traceback.format_exception(error))).rstrip("\n")
