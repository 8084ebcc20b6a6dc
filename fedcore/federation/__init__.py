"""The machine that runs any method: engines, the loop, messages and accounts."""

from .local import LocalEngine
from .timing import Timing
from .trace import Trace

__all__ = ["LocalEngine", "Timing", "Trace"]
