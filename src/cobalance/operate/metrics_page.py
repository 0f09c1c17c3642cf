"""``/metrics``: a registry as a page. Needs the extra ``metrics``."""

from __future__ import annotations

from http import HTTPStatus

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from cobalance.operate.http_listener import Answer, Pages


def metrics_pages(registry: CollectorRegistry = REGISTRY) -> Pages:
    """Path → page, for an :class:`HttpListener` or a :class:`ProbeServer`."""
    return {"/metrics": lambda: Answer(HTTPStatus.OK, generate_latest(registry), CONTENT_TYPE_LATEST)}
