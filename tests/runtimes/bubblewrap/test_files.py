"""The isolated runtime: what the engine reads and writes in it."""

import errno
import sys

import pytest

from tests.runtimes.bubblewrap.boxes import box

pytestmark = [pytest.mark.real_time, pytest.mark.usefixtures("bubblewrap", "temporary")]


async def test_files_are_those_of_the_programs() -> None:
    async with box() as runtime:
        await runtime.write("a/b/file", "ä")
        await runtime.write("/tmp/c/file", b"\xff")
        assert (await runtime.run(["cat", "a/b/file"])).stdout == "ä"
        script = "echo more >> /workspace/a/b/file; echo z > a/new; printf y > /tmp/c/file; mv /tmp/c /tmp/d"
        assert (await runtime.run(["sh", "-c", script])).exit_code == 0
        assert await runtime.read("/workspace/a/b/file") == "ämore\n".encode()
        assert await runtime.read("a/new") == b"z\n"
        assert await runtime.read("/tmp/d/file") == b"y"


async def test_errors_about_files_name_the_path_in_the_box() -> None:
    async with box() as runtime:
        await runtime.write("file", "")
        with pytest.raises(FileNotFoundError, match="'/workspace/missing'"):
            await runtime.read("missing")
        with pytest.raises(IsADirectoryError, match="'/tmp'"):
            await runtime.read("/tmp")
        with pytest.raises(OSError, match="'/workspace/file/below'"):
            await runtime.write("file/below", "x")


@pytest.mark.parametrize("path", ["/etc/passwd", "/proc/self/environ", "/dev/zero", "/dev/shm/x", "/", "/usr/x"])
async def test_paths_elsewhere_are_refused(path: str) -> None:
    async with box() as runtime:
        for use in (runtime.read(path), runtime.write(path, "x")):
            with pytest.raises(PermissionError, match=f"is outside of /workspace and /tmp, .*'{path}'"):
                await use


@pytest.mark.parametrize(
    "path", ["link", "folder/passwd", "chain", "up", "in/../../secret", "../secret", "loop", "proc/environ"]
)
async def test_a_path_that_leads_out_is_refused_for_reading_and_writing(path: str) -> None:
    async with box() as runtime:
        script = "ln -s /etc/passwd link; ln -s /etc folder; ln -s link chain; ln -s ../../secret up; mkdir in; "
        script += "ln -s loop loop; ln -s /proc/self proc"
        assert (await runtime.run(["sh", "-c", script])).exit_code == 0
        for name in (path, f"/workspace/{path}"):
            for use in (runtime.read(name), runtime.write(name, "stolen")):
                with pytest.raises(OSError, match=rf"leads (out of the workspace|through too many).*{path}'"):
                    await use


async def test_links_between_the_folders_of_the_box_are_followed() -> None:
    async with box() as runtime:
        script = "mkdir -p /tmp/a /workspace/b; echo x > /tmp/a/file; ln -s /tmp/a there; ln -s /workspace/b /tmp/back"
        assert (await runtime.run(["sh", "-c", script])).exit_code == 0
        assert await runtime.read("there/file") == b"x\n"
        await runtime.write("/tmp/back/file", "y")
        assert await runtime.read("b/file") == b"y"
        with pytest.raises(PermissionError, match="leads out"):
            await runtime.read("there/../../etc/passwd")


async def test_what_is_no_regular_file_does_not_block_or_fill_memory() -> None:
    code = "import os, socket; os.mkfifo('pipe'); socket.socket(socket.AF_UNIX).bind('socket'); "
    code += "open('huge', 'wb').truncate(1 << 29); os.symlink('/dev/zero', 'zero')"
    async with box(read_cap=1000) as runtime:
        assert (await runtime.run([sys.executable, "-c", code])).exit_code == 0
        for path in ("pipe", "socket"):
            for use in (runtime.read(path), runtime.write(path, "x")):
                with pytest.raises(OSError, match=f"is not a regular file but .*{path}'") as raised:
                    await use
                assert raised.value.errno == errno.EINVAL
        with pytest.raises(OSError, match="no more than 1000 are read at once: '/workspace/huge'"):
            await runtime.read("huge")
        with pytest.raises(PermissionError, match="leads out"):
            await runtime.read("zero")


async def test_what_the_engine_makes_belongs_to_the_programs() -> None:
    async with box() as runtime:
        await runtime.write("a/b/file", "x")
        await runtime.write("/tmp/a/file", "x")
        script = "chmod 700 a a/b /tmp/a && echo y > a/b/file && rm /tmp/a/file && id -u && stat -c %u a a/b a/b/file"
        result = await runtime.run(["sh", "-c", script])
        assert result.exit_code == 0, result.stderr
        assert len(set(result.stdout.split())) == 1


@pytest.mark.parametrize(
    "left",
    [
        "mkdir -p a/b/c; touch a/b/c/file; chmod 0 a/b/c; chmod 555 a/b a; ln -s / root; chmod 0 /workspace /tmp",
        "mkfifo /tmp/pipe; mkdir /dev/shm/x; chmod 0 /dev/shm/x; ln -s /workspace /tmp/w",
        "cd /tmp; i=0; while [ $i -lt 100 ]; do mkdir d; cd d; i=$((i + 1)); done; touch file",
    ],
)
async def test_a_folder_goes_with_whatever_programs_left_in_it(left: str) -> None:
    async with box() as runtime:
        assert (await runtime.run(["sh", "-c", left])).exit_code == 0
