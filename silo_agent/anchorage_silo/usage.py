"""Processor and memory that a training takes, which the server learns where the hospital's policy allows it."""

import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import psutil

from anchorage.transport.messages import SYSTEM, Announcement, Bytes, Evaluation, Out, Progress, Task

if TYPE_CHECKING:  # the engine behind it is no part of a trainer's process
    from anchorage.engine.interfaces import SiloLearner


@dataclass(eq=False)
class MeasuredLearner:
    """A `SiloLearner` that adds to each announcement what the trainer process used: share of one processor, and memory at its end.

    ``system/cpu_percent`` in percent of one processor while it trained; ``system/memory_mb`` resident, ``system/gpu_memory_mb`` the most that torch
    held on a GPU since the process started, in MB (10^6 bytes).
    """

    learner: "SiloLearner"

    def train(self, task: Task, model: Bytes, out: Out, progress: Progress) -> Announcement:
        """Train, and add what that used to the metrics."""
        started, used = time.perf_counter(), time.process_time()
        announcement = self.learner.train(task, model, out, progress)
        share = (time.process_time() - used) / max(time.perf_counter() - started, 1e-9)
        usage = {"cpu_percent": 100 * share, "memory_mb": psutil.Process().memory_info().rss / 1e6}
        torch = sys.modules.get("torch")  # a null trainer has none
        if torch is not None and torch.cuda.is_initialized():
            usage["gpu_memory_mb"] = torch.cuda.max_memory_allocated() / 1e6
        system = {SYSTEM + name: value for name, value in usage.items()}
        return replace(announcement, metrics={**announcement.metrics, **system})

    def evaluate(self, task: Task, model: Bytes) -> Evaluation:
        """Evaluate a model."""
        return self.learner.evaluate(task, model)
