"""The data pipeline on Spark. DataFrame API only; nothing here names a master: see ``session.py``."""
