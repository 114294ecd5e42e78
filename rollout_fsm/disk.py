"""What is on disk for good: names of files, which survive a crash only with the folder that holds them. Blocks."""

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Have the names in a folder survive a crash, as the content of synced files does. Raises `OSError`."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
