"""What a piece of work took: time and memory. The peer's interpreter runs it, too, so it imports nothing of either."""

import gc
import os
import time
from pathlib import Path


class Meter:
    """Seconds of the clock and of the processor since it was made."""

    def __init__(self) -> None:
        gc.collect()
        self.began = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        clock, processor = time.perf_counter(), time.process_time()
        return clock - self.began[0], processor - self.began[1]


def resident() -> int:
    """Bytes of this process that are in memory, without what is garbage."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
