"""The isolated runtime: what programs may use, and what becomes of a box that writes too much."""

import signal
import sys

import pytest

from rollout_fsm.errors import SandboxError
from rollout_fsm.runtimes.bubblewrap import BoxLimits
from tests.runtimes.bubblewrap.boxes import box

pytestmark = [pytest.mark.real_time, pytest.mark.usefixtures("bubblewrap", "temporary")]
PYTHON = sys.executable
MIB = 1 << 20


async def test_the_memory_of_a_process_is_limited() -> None:
    async with box(limits=BoxLimits(memory=200 * MIB)) as runtime:
        assert (await runtime.run([PYTHON, "-c", f"bytearray(50 * {MIB})"])).exit_code == 0
        result = await runtime.run([PYTHON, "-c", f"bytearray(500 * {MIB})"])
        assert result.exit_code == 1
        assert "MemoryError" in result.stderr


async def test_the_cpu_time_of_a_process_is_limited() -> None:
    async with box(limits=BoxLimits(cpu_time=1)) as runtime:
        assert (await runtime.run([PYTHON, "-c", "while True: pass"])).exit_code == -signal.SIGXCPU
        stubborn = "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
        assert (await runtime.run([PYTHON, "-c", stubborn])).exit_code == -signal.SIGKILL


async def test_the_number_of_processes_of_a_box_is_limited_for_itself() -> None:
    code = (
        "import os, signal\nnumber = 0\nwhile number < 200:\n try: number += 1 if os.fork() else signal.pause() or 0\n"
    )
    code += " except OSError: break\nprint(number, flush=True)\nos.kill(0, signal.SIGKILL)"
    async with box(limits=BoxLimits(processes=20)) as runtime, box("other", limits=BoxLimits(processes=20)) as other:
        for each in (runtime, other):
            result = await each.run([PYTHON, "-c", code])
            assert 10 <= int(result.stdout) <= 20


async def test_the_size_of_a_file_and_the_number_of_open_ones_are_limited() -> None:
    async with box(limits=BoxLimits(file_size=MIB, open_files=50)) as runtime:
        result = await runtime.run(["sh", "-c", "head -c 2000000 /dev/zero > file"])
        assert result.exit_code == 128 + signal.SIGXFSZ
        assert len(await runtime.read("file")) == MIB
        result = await runtime.run([PYTHON, "-c", "import os\nfor number in range(100): print(os.dup(0))"])
        assert "Too many open files" in result.stderr
        assert result.stdout.split()[-1] == "49"


async def test_limits_cannot_be_raised_by_programs_nor_beyond_what_the_engine_has() -> None:
    async with box(limits=BoxLimits(open_files=50, processes=1 << 30)) as runtime:
        result = await runtime.run(["sh", "-c", "ulimit -n 60"])
        assert result.exit_code != 0
        assert (await runtime.run(["sh", "-c", "ulimit -c; ulimit -n"])).stdout == "0\n50\n"


FILLERS = {
    "the workspace": "head -c 20000000 /dev/zero > file",
    "what is temporary": "head -c 20000000 /dev/zero > /tmp/file",
    "shared memory": "head -c 20000000 /dev/zero > /dev/shm/file",
    "many files": "i=0; while :; do head -c 100000 /dev/zero > $i; i=$((i + 1)); done",
    "a forbidden folder": "mkdir a; head -c 20000000 /dev/zero > a/file; chmod 0 a",
    "a folder in a forbidden one": "mkdir -p a/b/c; head -c 20000000 /dev/zero > a/b/c/file; chmod 0 a/b a",
    "a file without a name": "exec 3> file; rm file; head -c 20000000 /dev/zero >&3",
    "a file in memory without a name": "import os; os.write(os.memfd_create('x'), bytes(20_000_000))",
    "what hides": "import ctypes, os; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); file = os.open('file', 577); "
    "os.unlink('file'); os.write(file, bytes(20_000_000))",
}


@pytest.mark.parametrize("how", list(FILLERS))
async def test_a_box_that_writes_too_much_is_ended_and_says_so(how: str) -> None:
    script = FILLERS[how]
    argv = ["sh", "-c", f"{script}; sleep 1000"]
    if script.startswith("import"):
        argv = [PYTHON, "-c", f"{script}\nimport time; time.sleep(1000)"]
    said = r"runtime box was ended: it has written \d+ bytes or more, beyond BoxLimits\(workspace=10485760\)"
    async with box(limits=BoxLimits(workspace=10 * MIB)) as runtime:
        with pytest.raises(SandboxError, match=said):
            await runtime.run(argv)
        with pytest.raises(SandboxError, match=said):
            await runtime.run(["true"])
        with pytest.raises(SandboxError, match=said):
            await runtime.alive()
        assert await runtime.kill()


async def test_a_box_that_makes_too_many_files_is_ended_and_says_so() -> None:
    script = "i=0; while :; do : > $i; i=$((i + 1)); done"
    async with box(limits=BoxLimits(files=100)) as runtime:
        with pytest.raises(SandboxError, match=r"it has made \d+ files or more, beyond BoxLimits\(files=100\)"):
            await runtime.run(["sh", "-c", script])


async def test_what_is_written_and_removed_again_is_not_counted() -> None:
    async with box(limits=BoxLimits(workspace=10 * MIB)) as runtime:
        for _ in range(4):
            result = await runtime.run(["sh", "-c", "head -c 5000000 /dev/zero > file; ln file link; rm file link"])
            assert result.exit_code == 0
        assert (await runtime.run(["truncate", "-s", "1G", "sparse"])).exit_code == 0
        assert await runtime.alive()


async def test_the_size_of_one_box_is_none_of_anothers_business() -> None:
    async with box(limits=BoxLimits(workspace=10 * MIB)) as runtime, box("other") as other:
        with pytest.raises(SandboxError, match="was ended"):
            await runtime.run(["sh", "-c", FILLERS["the workspace"] + "; sleep 1000"])
        assert (await other.run(["echo", "on"])).stdout == "on\n"
