"""The filter of system calls, run by a small interpreter of its own language: each call of each machine is decided."""

import errno
import struct

import pytest

from rollout_fsm.errors import SandboxError
from rollout_fsm.runtimes.bubblewrap.seccomp import (
    ALLOW,
    ARCHITECTURE,
    EVERYWHERE,
    FAIL,
    LASTING_MEMORY,
    LOOKED_INTO,
    MACHINES,
    NEW_USER_NAMESPACE,
    SET_DUMPABLE,
    X32,
    filter_program,
)

CALLS = range(600)


def decided(program: bytes, architecture: int, number: int, argument: int = 0, second: int = 0) -> int:
    """What the kernel would make of a system call."""
    given = struct.pack("=iIQ", number, architecture, 0) + struct.pack("=6Q", argument, second, 0, 0, 0, 0)
    steps = list(struct.iter_unpack("=HBBI", program))
    place, value = 0, 0
    while True:
        code, then, otherwise, operand = steps[place]
        place += 1
        match code:
            case 0x20:
                (value,) = struct.unpack_from("=I", given, operand)
            case 0x06:
                return int(operand)
            case 0x15:
                place += then if value == operand else otherwise
            case 0x35:
                place += then if value >= operand else otherwise
            case 0x45:
                place += then if value & operand else otherwise
            case _:
                raise AssertionError(f"no instruction of the filter: {code:#x}")


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_every_call_is_allowed_but_those_that_are_listed(machine: str) -> None:
    architecture, own = MACHINES[machine]
    program, numbers = filter_program(machine), {**own, **EVERYWHERE}
    names = {number: name for name, number in numbers.items()}
    assert len(names) == len(numbers)
    for number in CALLS:
        name = names.get(number)
        if name in LOOKED_INTO:
            continue
        assert decided(program, architecture, number) == (ALLOW if name is None else FAIL | errno.EPERM), name


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_some_calls_are_allowed_for_what_is_harmless(machine: str) -> None:
    architecture, own = MACHINES[machine]
    program = filter_program(machine)
    for name in ("clone", "unshare"):
        assert decided(program, architecture, own[name], 0x11) == ALLOW
        assert decided(program, architecture, own[name], NEW_USER_NAMESPACE | 0x11) == FAIL | errno.EPERM
    assert decided(program, architecture, EVERYWHERE["clone3"]) == FAIL | errno.ENOSYS
    assert decided(program, architecture, own["prctl"], SET_DUMPABLE) == FAIL
    assert decided(program, architecture, own["prctl"], SET_DUMPABLE + 1) == ALLOW
    assert decided(program, architecture, own["prlimit64"], 0) == ALLOW
    assert decided(program, architecture, own["prlimit64"], 1) == FAIL | errno.EPERM
    for size, made in ((1, True), (LASTING_MEMORY, True), (LASTING_MEMORY + 1, False), (1 << 32, False)):
        assert decided(program, architecture, own["shmget"], 0, size) == (ALLOW if made else FAIL | errno.ENOMEM)
    allowed = [family for family in range(64) if decided(program, architecture, own["socket"], family) == ALLOW]
    assert allowed == [1, 2, 10, 16]
    assert decided(program, architecture, own["socket"], 40) == FAIL | errno.EAFNOSUPPORT


def test_calls_in_another_machines_numbers_are_refused() -> None:
    program = filter_program("x86_64")
    own, _ = MACHINES["x86_64"]
    for number in CALLS:
        assert decided(program, 0x40000003, number) == FAIL | errno.ENOSYS
        assert decided(program, own, X32 + number) == FAIL | errno.ENOSYS


def test_a_machine_whose_numbers_are_not_known_is_named() -> None:
    with pytest.raises(SandboxError, match=r"no numbers of the system calls of vax, .* aarch64, riscv64, x86_64"):
        filter_program("vax")


def test_the_filter_looks_at_the_architecture_first() -> None:
    assert struct.unpack_from("=HBBI", filter_program("x86_64")) == (0x20, 0, 0, ARCHITECTURE)
