"""The Redis user that the README publishes, as whom the tests run."""

from __future__ import annotations

from tests.readme_sections import acl_line

USER, PASSWORD = "cobalance", "published"


def rules() -> list[str]:
    """The user's rules, from its state on."""
    return acl_line().strip("`\n").removeprefix("text\n").replace("PASSWORD", PASSWORD).split()[3:]


def published_user() -> tuple[str, ...]:
    """Command line options by which a Redis has the user, over restarts, too."""
    return ("--user", USER, *rules())


def as_published_user(url: str) -> str:
    """The URL, logging in as that user; one that logs in already stays as it is."""
    return url if "@" in url else url.replace("redis://", f"redis://{USER}:{PASSWORD}@")
