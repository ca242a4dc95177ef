"""Sandglass: a stateful session kernel gateway."""

__version__ = "0.1.0"
