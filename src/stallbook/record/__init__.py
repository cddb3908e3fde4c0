"""Recording inside an engine's process. Standard library only; knows nothing of the rest of the package."""

from stallbook.record.null import NullRecorder
from stallbook.record.recorder import Recorder
from stallbook.record.whole import WholeRecorder

__all__ = ["NullRecorder", "Recorder", "WholeRecorder"]
