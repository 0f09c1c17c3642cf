"""Redis's password appears nowhere in Spark: plans, progress, errors, checkpoints. Its log: test_journal.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import pytest
import redis
from tests.spark.journals import everything_in, write

from cobalance.cli.sims.journal import to_the_end as follow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.campaign]


SECRET = "s3cret-of-this-test"  # the published password is a word that may occur in Spark's log


@pytest.fixture
def address(admin: redis.Redis, stem: str, tmp_path: Path, redis_admin_url: str) -> Iterator[str]:
    """A file with the URL of a user whose password is like no other word."""
    admin.acl_setuser(stem, enabled=True, passwords=[f"+{SECRET}"], keys=["*"], channels=["*"], categories=["+@all"])
    parts, file = urlsplit(redis_admin_url), tmp_path / "redis-url"
    file.write_text(urlunsplit(parts._replace(netloc=f"{stem}:{SECRET}@{parts.hostname}:{parts.port}")))
    yield str(file)
    admin.acl_deluser(stem)


class Streamed:
    """A stream of a group into nowhere, up to what is there now."""

    def __init__(self, frame: DataFrame, checkpoint: Path) -> None:
        self.query: StreamingQuery | None = None
        self._writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))

    def start(self) -> StreamingQuery:
        """Starts or resumes it."""
        self.query = self._writer.trigger(availableNow=True).start()
        return self.query


def test_a_stream_shows_no_password(
    spark: SparkSession, admin: redis.Redis, stem: str, address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Progress, status, plans and the checkpoint; also the error of a wrong password."""
    checkpoint = Path(address).with_name("checkpoint")
    write(admin, stem, 1, 30)
    stream = Streamed(
        spark.readStream.format("cobalance").options(groups=stem, redisUrlFile=address).load(), checkpoint
    )
    follow(stream.start)
    assert stream.query is not None
    stream.query.explain(extended=True)
    shown = [_progress(stream.query), str(stream.query.status)]
    Path(address).write_text(Path(address).read_text().replace(SECRET, f"wrong{SECRET}"))
    write(admin, stem, 31, 40)
    with pytest.raises(Exception, match="user name or password") as refused:
        follow(stream.start)
    assert stream.query is not None
    shown += [repr(refused.value), str(refused.value), repr(stream.query.exception()), str(stream.query.status)]
    told = capfd.readouterr()
    assert '"numInputRows": 30' in shown[0]
    assert "cobalance" in told.out, "there was no plan"
    everything: list[Any] = [*shown, told.out, told.err, everything_in(checkpoint)]
    assert not [text for text in everything if SECRET in text]


def _progress(query: StreamingQuery) -> str:
    return json.dumps([json.loads(it.json) for it in query.recentProgress])
