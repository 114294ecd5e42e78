"""A filter of system calls, against what namespaces alone do not keep from programs; in the kernel's language for it.

No namespaces of their own, in which they would have capabilities again; no sockets but of the kinds that the box's own
network holds (a VM's socket to its host is none of them); none of the kernel's keys, logs, modules and the like; no
limits for others; and no way to hide from being measured. What is refused fails as on a kernel that does not have it.
"""

import errno
import platform
import socket
import struct
from collections.abc import Mapping, Sequence

from attrs import frozen

from rollout_fsm.errors import SandboxError

# The kernel's own numbers.
LOAD, JUMP_EQUAL, JUMP_NOT_BELOW, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, ARGUMENT, SECOND, ABOVE_SECOND = 0, 4, 16, 24, 28
"""Offsets in what the filter is given; an argument is the lower half of it, and what is above that the upper one."""
ALLOW, FAIL = 0x7FFF0000, 0x00050000
NEW_USER_NAMESPACE = 0x10000000
SET_DUMPABLE = 4
X32 = 0x40000000
"""The first number of a second set of system calls, which x86-64 has."""
LASTING_MEMORY = 1 << 16
"""Bytes of one System V segment of shared memory, which a database takes a little of."""
FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)

GENERIC: Mapping[str, int] = {
    "acct": 89,
    "add_key": 217,
    "bpf": 280,
    "clone": 220,
    "delete_module": 106,
    "finit_module": 273,
    "init_module": 105,
    "kexec_file_load": 294,
    "kexec_load": 104,
    "keyctl": 219,
    "mount": 40,
    "open_by_handle_at": 265,
    "perf_event_open": 241,
    "pivot_root": 41,
    "prctl": 167,
    "prlimit64": 261,
    "quotactl": 60,
    "reboot": 142,
    "request_key": 218,
    "setns": 268,
    "shmget": 194,
    "socket": 198,
    "swapoff": 225,
    "swapon": 224,
    "syslog": 116,
    "umount2": 39,
    "unshare": 97,
    "userfaultfd": 282,
}
X86_64: Mapping[str, int] = {
    "acct": 163,
    "add_key": 248,
    "bpf": 321,
    "clone": 56,
    "delete_module": 176,
    "finit_module": 313,
    "init_module": 175,
    "kexec_file_load": 320,
    "kexec_load": 246,
    "keyctl": 250,
    "mount": 165,
    "open_by_handle_at": 304,
    "perf_event_open": 298,
    "pivot_root": 155,
    "prctl": 157,
    "prlimit64": 302,
    "quotactl": 179,
    "reboot": 169,
    "request_key": 249,
    "setns": 308,
    "shmget": 29,
    "socket": 41,
    "swapoff": 168,
    "swapon": 167,
    "syslog": 103,
    "umount2": 166,
    "unshare": 272,
    "userfaultfd": 323,
}
EVERYWHERE: Mapping[str, int] = {
    "clone3": 435,
    "fsconfig": 431,
    "fsmount": 432,
    "fsopen": 430,
    "fspick": 433,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "io_uring_setup": 425,
    "mount_setattr": 442,
    "move_mount": 429,
    "open_tree": 428,
}
"""Newer calls have the same number on every machine."""
MACHINES: Mapping[str, tuple[int, Mapping[str, int]]] = {
    "aarch64": (0xC00000B7, GENERIC),
    "riscv64": (0xC00000F3, GENERIC),
    "x86_64": (0xC000003E, X86_64),
}
"""Machine to what the kernel calls it, and its numbers."""
LOOKED_INTO = frozenset({"clone", "clone3", "prctl", "prlimit64", "shmget", "socket", "unshare"})
"""Calls that are refused for some arguments only, or in a way of their own."""


@frozen
class Step:
    """An instruction. `then` and `otherwise` are how many instructions a jump skips."""

    code: int
    value: int
    then: int = 0
    otherwise: int = 0


def filter_program(machine: str | None = None) -> bytes:
    """The filter for this machine, or another one. Raises `SandboxError` where it is not known how."""
    machine = machine or platform.machine()
    if machine not in MACHINES:
        raise SandboxError(
            f"BubblewrapRuntime knows no numbers of the system calls of {machine}, which it has to filter; it works on "
            f"{', '.join(sorted(MACHINES))}"
        )
    architecture, numbers = MACHINES[machine]
    numbers = {**numbers, **EVERYWHERE}
    steps = [
        Step(LOAD, ARCHITECTURE),
        Step(JUMP_EQUAL, architecture, then=1),
        fail(errno.ENOSYS),
        Step(LOAD, NUMBER),
        Step(JUMP_NOT_BELOW, X32, otherwise=1),
        fail(errno.ENOSYS),
    ]
    for name, number in numbers.items():
        if name not in LOOKED_INTO:
            steps += when(number, [fail(errno.EPERM)])
    # A library that finds no clone3, whose flags a filter cannot see, takes clone.
    steps += when(numbers["clone3"], [fail(errno.ENOSYS)])
    for name in ("clone", "unshare"):
        argument = [Step(LOAD, ARGUMENT), Step(JUMP_ANY_BIT, NEW_USER_NAMESPACE, otherwise=1), fail(errno.EPERM)]
        steps += when(numbers[name], [*argument, Step(RETURN, ALLOW)])
    # Who wants not to be looked into is told that he is not.
    hiding = [Step(LOAD, ARGUMENT), Step(JUMP_EQUAL, SET_DUMPABLE, otherwise=1), fail(0)]
    steps += when(numbers["prctl"], [*hiding, Step(RETURN, ALLOW)])
    # Limits are one's own to set: those of the box's first process are not.
    own = [Step(LOAD, ARGUMENT), Step(JUMP_EQUAL, 0, then=1), fail(errno.EPERM), Step(RETURN, ALLOW)]
    steps += when(numbers["prlimit64"], own)
    # Memory that outlives the processes that have it is measured by nobody.
    little = [
        Step(LOAD, ABOVE_SECOND),
        Step(JUMP_EQUAL, 0, otherwise=2),
        Step(LOAD, SECOND),
        Step(JUMP_NOT_BELOW, LASTING_MEMORY + 1, otherwise=1),
        fail(errno.ENOMEM),
        Step(RETURN, ALLOW),
    ]
    steps += when(numbers["shmget"], little)
    kinds = [Step(JUMP_EQUAL, family, then=len(FAMILIES) - place) for place, family in enumerate(FAMILIES)]
    steps += when(numbers["socket"], [Step(LOAD, ARGUMENT), *kinds, fail(errno.EAFNOSUPPORT), Step(RETURN, ALLOW)])
    steps.append(Step(RETURN, ALLOW))
    return b"".join(struct.pack("=HBBI", step.code, step.then, step.otherwise, step.value) for step in steps)


def fail(number: int) -> Step:
    """Have the call return this errno, and do nothing."""
    return Step(RETURN, FAIL | number)


def when(number: int, steps: Sequence[Step]) -> list[Step]:
    """The steps for one system call, whose number is loaded."""
    return [Step(JUMP_EQUAL, number, otherwise=len(steps)), *steps]
