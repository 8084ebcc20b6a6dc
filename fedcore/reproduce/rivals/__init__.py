"""Other personalised and federated methods, on the same data and tuned alike."""

from .compare import chapter, measurements

__all__ = ["chapter", "measurements"]
