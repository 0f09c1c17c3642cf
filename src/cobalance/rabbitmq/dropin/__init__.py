"""Runs programs written for pika's BlockingConnection as members of a group."""

from cobalance.rabbitmq.dropin.connection import GroupConnection

__all__ = ["GroupConnection"]
