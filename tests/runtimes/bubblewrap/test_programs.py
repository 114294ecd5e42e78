"""The isolated runtime: how programs are run in it, and what they find there."""

import os
import signal
import sys
from pathlib import Path

import pytest
import trio

from rollout_fsm.errors import SandboxError
from tests.runtimes.bubblewrap.boxes import box

pytestmark = [pytest.mark.real_time, pytest.mark.usefixtures("bubblewrap", "temporary")]
PYTHON = sys.executable


async def test_a_program_ends_with_its_exit_code_and_output() -> None:
    async with box() as runtime:
        result = await runtime.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
        assert (result.exit_code, result.stdout, result.stderr) == (3, "out\n", "err\n")
        assert (await runtime.run(["sh", "-c", "kill -9 $$"])).exit_code == -signal.SIGKILL


async def test_nothing_of_the_engines_environment_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("ROLLOUT_FSM_BOX_outer", "7")
    monkeypatch.delenv("LANG", raising=False)
    async with box() as runtime:
        shown = (await runtime.run(["env"], env={"ADDED": "1", "HOME": "/tmp"})).stdout
        assert dict(line.split("=", 1) for line in shown.splitlines()) == {
            "PATH": f"{Path(PYTHON).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/tmp",
            "TMPDIR": "/tmp",
            "LANG": "C.UTF-8",
            "ADDED": "1",
            "ROLLOUT_FSM_RUN": "1",
        }


async def test_programs_begin_in_the_workspace_which_is_their_home() -> None:
    async with box() as runtime:
        assert (await runtime.run(["sh", "-c", "pwd; echo $HOME"])).stdout == "/workspace\n/workspace\n"
        await runtime.write("tools/hello", "#!/bin/sh\necho hello $1\n")
        assert (await runtime.run(["chmod", "+x", "tools/hello"])).exit_code == 0
        assert (await runtime.run(["tools/hello", "you"])).stdout == "hello you\n"
        assert (await runtime.run(["hello", "me"], env={"PATH": "tools:/bin"})).stdout == "hello me\n"


async def test_this_interpreter_runs_with_its_packages() -> None:
    async with box() as runtime:
        code = "import sys; print(sys.prefix, sys.version)"
        assert (await runtime.run([PYTHON, "-c", code])).stdout == f"{sys.prefix} {sys.version}\n"
        assert (await runtime.run(["python3", "-c", "import sys; print(sys.prefix)"])).stdout == f"{sys.prefix}\n"


async def test_this_interpreter_runs_by_whatever_name_it_was_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(PYTHON)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "link"))
    async with box() as runtime:
        assert (await runtime.run([f"{tmp_path}/link", "-c", "print(6 * 7)"])).stdout == "42\n"


async def test_input_and_output_are_as_long_as_they_like() -> None:
    data = os.urandom(50_000).hex()
    async with box(cap=1 << 20) as runtime:
        assert (await runtime.run(["cat"], input=data)).stdout == data
        assert (await runtime.run(["wc", "-c"], input=b"q" * 5_000_000)).stdout.strip() == "5000000"
        assert (await runtime.run(["true"], input=b"q" * 5_000_000)).exit_code == 0
        assert (await runtime.run(["cat"], input="")).stdout == ""
        assert (await runtime.run(["cat"])).stdout == ""
    async with box(cap=1000) as runtime:
        printed = (await runtime.run(["sh", "-c", "yes | head -c 5000000; printf END"])).stdout
        assert printed.startswith("y\ny\n")
        assert "[--- 4999003 of 5000003 bytes cut here ---]" in printed
        assert printed.endswith("y\nEND")


async def test_arguments_and_variables_may_be_long_and_of_any_bytes() -> None:
    odd = os.fsdecode(bytes(range(1, 256)))
    async with box(cap=1 << 22) as runtime:
        long = "x" * 100_000
        result = await runtime.run(["sh", "-c", 'printf "%s%s%s" "$0" "$1" "$LONG"', long, "y"], env={"LONG": long})
        assert result.stdout == f"{long}y{long}"
        code = "import os, sys; sys.stdout.buffer.write(os.fsencode(sys.argv[1]) + os.fsencode(os.environ['ODD']))"
        shown = await runtime.run([PYTHON, "-c", f"{code}; print()", odd], env={"ODD": odd})
        assert shown.stdout == (bytes(range(1, 256)) * 2).decode(errors="replace") + "\n"


async def test_what_no_program_can_be_given_is_refused() -> None:
    async with box() as runtime:
        with pytest.raises(TypeError, match="a list of strings, not a command line: 'ls -l'"):
            await runtime.run("ls -l")
        with pytest.raises(ValueError, match="argv is empty"):
            await runtime.run([])
        with pytest.raises(ValueError, match="'true' has a null byte"):
            await runtime.run(["true", "a\0b"])
        for name in ("", "a=b"):
            with pytest.raises(ValueError, match="is no name of an environment variable"):
                await runtime.run(["true"], env={name: "x"})
        with pytest.raises(SandboxError, match="could not start 'true': Argument list too long"):
            await runtime.run(["true", "x" * 5_000_000])
        assert (await runtime.run(["true"])).exit_code == 0


async def test_a_program_that_is_missing_is_named_with_where_in_the_box_was_looked() -> None:
    async with box() as runtime:
        with pytest.raises(FileNotFoundError, match="no such program in runtime box, looked in its PATH '/no:/b'"):
            await runtime.run(["frob"], env={"PATH": "/no:/b"})
        with pytest.raises(FileNotFoundError, match="looked in /workspace/bin/frob: 'bin/frob'"):
            await runtime.run(["bin/frob"])
        with pytest.raises(FileNotFoundError, match="looked in /nowhere/frob"):
            await runtime.run(["/nowhere/frob"])
        await runtime.write("script", "#!/nowhere/sh\n")
        with pytest.raises(PermissionError, match=r"/workspace/script in runtime box is not executable; chmod \+x it"):
            await runtime.run(["./script"])
        with pytest.raises(PermissionError, match=r"/workspace/script in runtime box is not executable"):
            await runtime.run(["script"], env={"PATH": "/nowhere:."})
        with pytest.raises(PermissionError, match="/tmp in runtime box is not a file that can be run"):
            await runtime.run(["/tmp"])
        await runtime.run(["chmod", "+x", "script"])
        with pytest.raises(FileNotFoundError, match="script is there, but the interpreter that it asks for is not"):
            await runtime.run(["./script"])


async def test_many_programs_run_at_once() -> None:
    results: dict[int, str] = {}

    async def one(number: int) -> None:
        results[number] = (await runtime.run(["sh", "-c", 'cat; echo "$N"'], env={"N": str(number)}, input="n=")).stdout

    async with box() as runtime, trio.open_nursery() as nursery:
        for number in range(40):
            nursery.start_soon(one, number)
    assert results == {number: f"n={number}\n" for number in range(40)}


async def test_what_a_program_leaves_behind_lives_on_although_it_holds_the_output() -> None:
    async with box() as runtime:
        script = "mkfifo up; (sleep 1000 & echo $! > pid; echo up > up; wait) & cat up; exec echo left"
        assert (await runtime.run(["sh", "-c", script])).stdout == "up\nleft\n"
        assert (await runtime.run(["sh", "-c", "kill -0 $(cat pid)"])).exit_code == 0


async def test_programs_see_chosen_folders_of_the_machine_and_write_their_own_only(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").write_text("shown")
    async with box(read_only=[tmp_path / "data"]) as runtime:
        shown = set((await runtime.run(["ls", "-A", "/"])).stdout.split())
        assert shown >= {"usr", "bin", "etc", "proc", "dev", "tmp", "workspace"}
        assert not shown & {"home", "var", "sys", "boot", "mnt", "srv", "opt"}
        assert (await runtime.run(["cat", f"{tmp_path}/data/file"])).stdout == "shown"
        script = "for place in / /etc /usr /dev /proc /run $0 /workspace /tmp /dev/shm; do "
        script += "(: > $place/new) 2> /dev/null && echo $place; done"
        writable = (await runtime.run(["sh", "-c", script, f"{tmp_path}/data"])).stdout.split()
        assert writable == ["/workspace", "/tmp", "/dev/shm"]
        etc = set((await runtime.run(["ls", "-A", "/etc"])).stdout.split())
        assert not etc & {"shadow", "gshadow", "sudoers", "ssh", "machine-id", "hostname"}
        assert (await runtime.run(["cat", "/etc/passwd"])).stdout.startswith("agent:x:")
        assert (await runtime.run(["hostname"])).stdout == "box\n"


async def test_what_leads_to_a_chosen_folder_cannot_be_moved_so_that_another_takes_its_place(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").write_text("shown")
    if not tmp_path.is_relative_to("/tmp"):
        pytest.skip("this is about folders below what programs can write, and those of tests are elsewhere here")
    script = "for place in $0 $0/data $(dirname $0) /tmp/$(echo $0 | cut -d/ -f3); do "
    script += "mv $place /tmp/moved 2> /dev/null && echo moved $place; done; (: > $0/new) 2> /dev/null && echo written"
    async with box(read_only=[tmp_path / "data"]) as runtime:
        assert (await runtime.run(["sh", "-c", script, str(tmp_path)])).stdout == ""
        assert (await runtime.run(["cat", f"{tmp_path}/data/file"])).stdout == "shown"


async def test_the_limits_of_the_first_process_are_not_a_programs_to_set() -> None:
    script = "import os, resource, signal, sys\n"
    script += "for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC):\n"
    script += "    resource.prlimit(0, kind)\n"
    script += "    try:\n        resource.prlimit(1, kind, (3, 3))\n"
    script += "    except PermissionError:\n        print('refused')\n"
    async with box() as runtime:
        assert (await runtime.run([sys.executable, "-c", script])).stdout == "refused\n" * 3
        assert (await runtime.run(["true"])).exit_code == 0


async def test_programs_see_no_process_but_those_of_their_box() -> None:
    async with box() as runtime:
        shown = (await runtime.run(["sh", "-c", "sleep 1000 & ls /proc; cat /proc/1/comm"])).stdout.split()
        pids = sorted(int(name) for name in shown if name.isdigit())
        assert pids[0] == 1
        assert len(pids) <= 4
        assert shown[-1].startswith("python")


async def test_programs_have_no_privileges() -> None:
    async with box() as runtime:
        status = (await runtime.run(["cat", "/proc/self/status"])).stdout
        fields = {key: value.split() for key, _, value in (line.partition(":") for line in status.splitlines())}
        for capabilities in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert fields[capabilities] == ["0" * 16]
        assert fields["NoNewPrivs"] == ["1"]
        assert fields["Seccomp"] == ["2"]
        assert fields["Uid"][0] != "0"
        if os.geteuid() == 0:
            assert 0x70000000 <= int(fields["Uid"][0]) < 0x7FFFFFFF
            assert fields["Uid"] == fields["Gid"] == [fields["Uid"][0]] * 4
            assert fields["Groups"] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives each box a user of its own")
async def test_each_box_has_a_user_of_its_own() -> None:
    async with box() as one, box() as other:
        users = [(await runtime.run(["id", "-u"])).stdout for runtime in (one, other)]
        assert users[0] != users[1]
