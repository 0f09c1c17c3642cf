"""Options of all commands that run on Spark."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated

import attrs
from cyclopts import Group, Parameter

from cobalance.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@Parameter(name="*", group=Group("Spark", sort_key=10))
@attrs.frozen(kw_only=True)
class SparkOptions:
    """Where Spark runs, and how."""

    master: Annotated[
        str | None, Parameter(help="local[N], spark://host:7077, yarn, …, or sc://host:15002; this machine by default.")
    ] = None
    conf: Annotated[
        tuple[str, ...],
        Parameter(negative="", show_default=False, help="KEY=VALUE, such as spark.driver.memory=4g; repeatable."),
    ] = ()

    def check(self) -> None:
        """Checks, before anything is read, that there is a PySpark here.

        Raises:
            SparkMissing: there is none; the message says what to install.
        """
        from cobalance_sims.spark import session

        session.imported_spark()

    def session(self) -> AbstractContextManager[SparkSession]:
        """Opens a session with these options for the duration of a ``with``.

        Raises:
            UsageError: an option is not a KEY=VALUE for Spark.
        """
        from cobalance_sims.spark import session

        return session.spark_session(self.master, config=dict(_pair(word) for word in self.conf))


HERE = SparkOptions()


def _pair(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not (equals and key.startswith("spark.")):
        raise UsageError(f"--conf {word!r}: give KEY=VALUE with a key that begins with 'spark.'")
    return key, value
