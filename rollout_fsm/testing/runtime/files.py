"""Files go into a box and come out of it as they are."""

from rollout_fsm.testing.contract import check
from rollout_fsm.testing.expecting import expect, raised_by, said
from rollout_fsm.testing.runtime import scripts
from rollout_fsm.testing.runtime.base import RuntimeChecks

__all__ = ["FileChecks"]


class FileChecks(RuntimeChecks):
    """`read` and `write`, and what programs see of them."""

    @check
    async def test_a_file_is_read_as_it_was_written(self) -> None:
        """`write` takes bytes or text, text as UTF-8, and `read` gives the same bytes back."""
        async with self.box() as box:
            given: dict[str, bytes | str] = {"bytes": bytes(range(256)) * 9, "nothing": b"", "text": "lines\r\nof ä\n"}
            for name, written in given.items():
                await box.write(name, written)
                read = await box.read(name)
                meant = written.encode() if isinstance(written, str) else written
                expect(read == meant, f"{meant[:40]!r} was written, {read[:40]!r} was read", "change nothing in it")

    @check
    async def test_a_file_that_is_there_is_replaced(self) -> None:
        """`write` replaces a file that is there, whole."""
        async with self.box() as box:
            await box.write("file", "a longer text")
            await box.write("file", "short")
            read = await box.read("file")
            expect(read == b"short", f"the file has {read!r}, not b'short'", "truncate what is there")

    @check
    async def test_folders_are_made_as_needed(self) -> None:
        """`write` makes the folders of a file, too."""
        async with self.box() as box:
            came = await raised_by(box.write("one/two/file", "x"))
            expect(came is None, f"write('one/two/file', …) {said(came)}", "make the folders on the way")
            read = (await box.sh(scripts.SHOW, "one/two/file")).stdout
            expect(read == "x", f"a program reads {read!r} in it, not 'x'", "write to the place that was named")

    @check
    async def test_programs_and_the_engine_share_the_workspace(self) -> None:
        """A relative path is relative to the workspace, which is where programs run; an absolute one is as programs
        see it."""
        async with self.box() as box:
            await box.write("from-the-engine", "in")
            seen = (await box.sh(scripts.SHOW, "from-the-engine")).stdout
            expect(seen == "in", f"a program reads {seen!r} in a file that has 'in'", "run programs in the workspace")
            await box.sh(scripts.PUT, "from-a-program", "out")
            folder = (await box.sh(scripts.WHERE)).stdout.strip()
            for path in ("from-a-program", f"{folder}/from-a-program"):
                read = await box.read(path)
                expect(read == b"out", f"read({path!r}) gave {read!r}, not b'out'", "read what programs wrote there")

    @check
    async def test_a_file_that_is_not_there_is_said_to_be_missing(self) -> None:
        """`read` raises `FileNotFoundError` for what is not there."""
        async with self.box() as box:
            came = await raised_by(box.read("no/such/file"))
            expect(
                isinstance(came, FileNotFoundError),
                f"read('no/such/file') {said(came)}",
                "raise a FileNotFoundError that names the path",
            )
