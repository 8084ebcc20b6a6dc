"""The machine that runs any method: engines, the loop, messages and accounts."""

from .local import LocalEngine
from .noise import GaussianNoise
from .privacy import PrivateSums
from .timing import Timing
from .trace import Trace

__all__ = ["GaussianNoise", "LocalEngine", "PrivateSums", "Timing", "Trace"]
