"""The shell scripts that a container runs, in every shell that is here, and in a process namespace of their own."""

import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.runtimes.docker import scripts
from rollout_fsm.runtimes.docker.executing import Stream, settings
from rollout_fsm.runtimes.output import HeadTail
from tests.profiles import examples

SHELLS = [shell for shell in (("dash",), ("bash", "--posix"), ("busybox", "sh"), ("sh",)) if shutil.which(shell[0])]
ALONE = ["bwrap", "--unshare-pid", "--as-pid-1", "--dev-bind", "/", "/", "--proc", "/proc", "--setenv", "BOX", "mine"]


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_program_is_run_with_what_was_said_in_any_shell(shell: tuple[str, ...]) -> None:
    given = settings("0123", "/usr", {"A": 'it\'s\n"$B" `x` \\ ü', "_x9": "", "token": "t", "IFS": "abc"})
    argv = ["env", "-u", "PWD", "sh", "-c", 'cat; printf "%s|" "$A" "$_x9" "$token" "$1" "$(pwd)"; exit 5', "sh", "a b"]
    done = subprocess.run([*shell, "-c", scripts.RUN, "sh", *argv], input=given + b"input\n", capture_output=True)
    end = b"\n0123 5\n"
    assert done.stdout.decode() == 'input\nit\'s\n"$B" `x` \\ ü||t|a b|/usr|' + end.decode()
    assert done.stderr == end
    for program, how in (("nowhere", b"absent"), ("/etc/passwd", b"denied"), ("/usr", b"absent"), ("cd", b"absent")):
        command = [*shell, "-c", scripts.RUN, "sh", program]
        done = subprocess.run(command, input=settings("0123", "/", {"PATH": "/usr/sbin"}), capture_output=True)
        assert done.stdout == b"\n0123 " + how + b"\n"


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="there is no bubblewrap here to make a process namespace")
@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_in_processes_of_their_own_all_end_that_were_not_there_before(shell: tuple[str, ...]) -> None:
    """The harness's programs shed their variables, their parents and their sessions, and ignore what asks them to end;
    the task's has a child only later."""
    script = """
    list=$1 end=$2; shift 2
    env -i sleep 1001 & env -i sh -c 'sleep 1002 & sleep 1003' &
    spared=$("$@" -c "$list")
    env -i setsid sh -c 'trap "" TERM; (sleep 1004; sleep 1005) & exit 0'
    setsid sh -c 'trap "" TERM; sleep 1006 & sleep 1007 & wait' &
    sleep 0.2
    left=$("$@" -c "$end" sh "MARK=e" "BOX=mine" 2 $spared); echo "status $? $left"
    ps -eo args | grep '^sleep' | sort
    """
    try:
        done = subprocess.run(
            [*ALONE, "sh", "-c", script, "sh", scripts.LIST, scripts.END, *shell],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        if "amespace" in error.stderr or "permitted" in error.stderr:
            pytest.skip(f"no process namespace can be made here: {error.stderr.strip()}")
        raise
    assert done.stdout.splitlines() == ["status 0 ", "sleep 1001", "sleep 1002", "sleep 1003"], done.stderr


@examples(1.0)
@given(
    st.lists(st.sampled_from([b"\n", b"tok", b"token", b"en", b" ", b"0", b"\ntoken 1\n", b"\ntoken ", b"x" * 5])),
    st.lists(st.integers(0, 12), max_size=12),
)
def test_what_a_program_said_is_kept_up_to_its_end_however_it_comes(said: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(said)
    stream = Stream(b"token", HeadTail(1000))
    rest = whole
    for cut in cuts:
        stream.feed(rest[:cut])
        rest = rest[cut:]
    stream.feed(rest)
    stream.finish()
    end = re.search(rb"\ntoken ([a-z0-9]{1,8})\n", whole)
    assert stream.ended == (end and end[1].decode())
    assert stream.kept.text() == whole[: end.start() if end else None].decode()
