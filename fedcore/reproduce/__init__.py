"""The published experiments beside what is measured here, as one report."""

from .run import PARTS, reproduce

__all__ = ["PARTS", "reproduce"]
