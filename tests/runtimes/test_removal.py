"""How a workspace goes away, whatever is in it."""

import os
from pathlib import Path

import pytest

from rollout_fsm.runtimes.removal import remove

NOBODY = 65534


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "workspace"
    made.mkdir()
    return made


def test_a_tree_goes(folder: Path) -> None:
    (folder / "a" / "b" / "c").mkdir(parents=True)
    (folder / "a" / "file").write_text("x")
    (folder / "a" / "b" / ".gone-0").write_text("x")
    (folder / ".gone-0").write_text("x")
    assert remove(folder) is None
    assert not folder.exists()


def test_a_folder_that_is_gone_is_fine(folder: Path) -> None:
    folder.rmdir()
    assert remove(folder) is None


def test_folders_deeper_than_a_path_can_be_long_go(folder: Path) -> None:
    home = os.open(".", os.O_RDONLY)
    try:
        os.chdir(folder)
        for _ in range(1500):
            os.mkdir("d" * 50)
            os.chdir("d" * 50)
    finally:
        os.fchdir(home)
        os.close(home)
    assert remove(folder) is None
    assert not folder.exists()


def test_links_are_removed_and_not_followed(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    (folder / "inner").mkdir()
    (folder / "link").symlink_to(outside)
    (folder / "inner" / "link").symlink_to(outside)
    (folder / "inner" / "dangling").symlink_to("nowhere")
    assert remove(folder) is None
    assert not folder.exists()
    assert outside.stat().st_mode & 0o777 == 0o500


def test_a_link_in_the_place_of_the_workspace_is_not_followed(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    folder.rename(outside / "moved")
    folder.symlink_to(outside)
    assert remove(folder) is None
    assert not folder.is_symlink()
    assert (outside / "moved").is_dir()
    assert outside.stat().st_mode & 0o777 == 0o500


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user, whom modes bind")
def test_folders_without_any_permission_go() -> None:
    folder = Path("/tmp") / f"removal-{os.getpid()}"
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        (folder / "a" / "b" / "c").mkdir(parents=True)
        (folder / "a" / "file").write_text("x")
        for path in (folder / "a" / "b" / "c", folder / "a" / "b", folder / "a", folder):
            path.chmod(0)
        assert remove(folder) is None
        assert not folder.exists()
    finally:
        os.setresuid(0, 0, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can leave a file that another user may not remove")
def test_what_cannot_be_removed_is_named() -> None:
    folder = Path("/tmp") / f"removal-{os.getpid()}"
    (folder / "root's").mkdir(parents=True)
    (folder / "root's" / "file").write_text("x")
    os.chown(folder, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        assert "root's" in (remove(folder) or "")
    finally:
        os.setresuid(0, 0, 0)
    assert remove(folder) is None
