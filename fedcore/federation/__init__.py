"""The machine that runs any method: engines, the loop, messages and accounts."""

from .local import LocalEngine

__all__ = ["LocalEngine"]
