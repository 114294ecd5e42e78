"""What the programs of a box may use. Each number is enforced by the kernel for each process, but for the workspace,
which is measured.
"""

import resource
from collections.abc import Iterator

from attrs import Attribute, field, frozen

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def _positive(_limits: object, attribute: "Attribute[int]", value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{attribute.name} of BoxLimits is a whole number of 1 or more, not {value!r}")


@frozen(kw_only=True)
class BoxLimits:
    """Limits of a box, in bytes and seconds."""

    memory: int = field(default=8 * GIB, validator=_positive)
    """Bytes of address space of one process. Programs that reserve much more than they use need more."""
    cpu_time: int = field(default=3600, validator=_positive)
    """Seconds of CPU time of one process; beyond it the process gets XCPU, and KILL a second later."""
    processes: int = field(default=256, validator=_positive)
    """Processes and threads of the box at the same time."""
    file_size: int = field(default=GIB, validator=_positive)
    """Bytes of one file."""
    open_files: int = field(default=1024, validator=_positive)
    """Descriptors of one process."""
    workspace: int = field(default=4 * GIB, validator=_positive)
    """Bytes on disk of all that can be written: the workspace, /tmp and /dev/shm. A box that holds more is ended. Files
    that were removed count while a process holds them open or mapped; one that is only on its way from socket to socket
    is not seen, nor, where the engine is an ordinary user, one that is only mapped. `file_size` bounds each of them."""
    files: int = field(default=200_000, validator=_positive)
    """Files and folders in there. A box that holds more is ended."""

    def of_a_process(self) -> Iterator[int]:
        """What the kernel holds each process to: kind, soft and hard limit, one after the other."""
        yield from (resource.RLIMIT_CORE, 0, 0)
        yield from (resource.RLIMIT_CPU, self.cpu_time, self.cpu_time + 1)
        yield from (resource.RLIMIT_NPROC, self.processes, self.processes)
        yield from (resource.RLIMIT_FSIZE, self.file_size, self.file_size)
        yield from (resource.RLIMIT_NOFILE, self.open_files, self.open_files)
        yield from (resource.RLIMIT_AS, self.memory, self.memory)
