"""A logbook for LLM serving engines: every nanosecond of every inter-token gap, charged to exactly one cause."""

__version__ = "0.1.0"
