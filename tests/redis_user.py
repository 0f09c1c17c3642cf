"""The Redis user that the README publishes, as which the tests run."""

from __future__ import annotations

from tests.readme_sections import acl_line

USER, PASSWORD = "cobalance", "published"


def rules() -> list[str]:
    """The user's rules, from its state on."""
    return acl_line().strip("`\n").removeprefix("text\n").replace("PASSWORD", PASSWORD).split()[3:]


def published_user() -> tuple[str, ...]:
    """Command line options that give a Redis this user, also after restarts."""
    return ("--user", USER, *rules())


def as_published_user(url: str) -> str:
    """Returns the URL with that user's credentials; a URL with credentials stays as it is."""
    return url if "@" in url else url.replace("redis://", f"redis://{USER}:{PASSWORD}@")
