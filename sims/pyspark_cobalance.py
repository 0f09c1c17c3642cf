"""By its name Spark finds this module, and with it the format "cobalance": see ``cobalance_sims.spark.journal``."""

from cobalance_sims.spark.journal import JournalSource as DefaultSource

__all__ = ["DefaultSource"]
