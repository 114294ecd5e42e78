"""What an import costs in a fresh interpreter, this side's or the peer's: time, and memory of the process (RSS).

    PYTHON tests/benchmarks/importing.py MODULE [NAME …]

Prints one JSON object. It imports next to nothing itself, so that what it measures is not there yet.
"""

import sys
import time


def resident() -> float:
    """MiB of this process that are in memory."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS"))


def main(module: str, *names: str) -> None:
    """Import a module, with these names of it."""
    memory, clock, processor = resident(), time.perf_counter(), time.process_time()
    imported = __import__(module, fromlist=["__name__", *names])
    clock, processor, memory = time.perf_counter() - clock, time.process_time() - processor, resident() - memory
    assert imported.__name__ == module
    sys.stdout.write(f'{{"ms": {clock * 1e3}, "cpu_ms": {processor * 1e3}, "mib": {memory}}}\n')


if __name__ == "__main__":
    main(*sys.argv[1:])
