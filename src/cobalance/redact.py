"""Blots out secrets in whatever is about to be shown: URLs, settings, the words of other libraries' errors.

When in doubt it hides too much. The user name goes too, since people paste passwords there.
"""

from __future__ import annotations

import re

MASK = "***"

# Everything between "scheme://" and the last "@" before a blank or quote: passwords may hold "@", "/", ":" and "#" unescaped.
_USERINFO = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^\s'\"<>`]*@")

# When the text is one URL, its password may even hold blanks and quotes.
_LONE_URL = re.compile(r"\A(\s*[A-Za-z][A-Za-z0-9+.-]*://).*@", re.DOTALL)

# password=… in a query, a keyword argument, a mapping's repr or a configuration line.
_NAMED = re.compile(
    r"""(?ix)
    ( \b [\w-]* (?: password | passwd | passphrase | pwd | secret | api_?key ) \b ['"]? \s* [=:] \s* )
    (?: '[^']*' | "[^"]*" | b'[^']*' | [^\s&;,)\]}'"]+ )
    """
)


def redact(text: str) -> str:
    """The text with every secret replaced by ``***``. A URL keeps its scheme, host, port and path."""
    if "://" in text:
        text = _LONE_URL.sub(rf"\1{MASK}@", text)
        text = _USERINFO.sub(rf"\1{MASK}@", text)
    return _NAMED.sub(rf"\1{MASK}", text)
