"""The command line of bubblewrap for one box, and what is said where bubblewrap is not there or not permitted."""

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from rollout_fsm.errors import SandboxError
from rollout_fsm.runtimes.bubblewrap import etc, keeper, system
from rollout_fsm.runtimes.bubblewrap.folder import WRITABLE, Folder
from rollout_fsm.runtimes.bubblewrap.lease import FIRST_USER, LAST_USER, BoxLease

KEEPER = Path("/run/keeper.py")
"""Where in the box the script of its first process is."""
ROOTS_CAPABILITIES = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")
"""What the first process needs to become a user of its own, where the engine is root; it gives them up so."""
NEEDED_CAPABILITIES = (0, 6, 7, 8, 12, 21)
"""Numbers of those that bubblewrap and this runtime need as root: to give files away, to become others, to give up what
they have, for the loopback interface, and for namespaces."""
INSTALL = "install bubblewrap (Debian, Ubuntu: apt-get install bubblewrap)"


def bubblewrap() -> str:
    """The path of the program. Raises `SandboxError` saying what to install."""
    if sys.platform != "linux":
        raise SandboxError(f"BubblewrapRuntime works on Linux only, and this is {sys.platform}: use another runtime")
    found = shutil.which("bwrap")
    if found is None:
        raise SandboxError(f"BubblewrapRuntime needs the program bwrap, which is not in PATH: {INSTALL}")
    return found


def user_of(lease: BoxLease) -> int | None:
    """The user that a box's programs get; None where they have the engine's own, in a user namespace."""
    root = os.geteuid() == 0 and _is_mapped(range(FIRST_USER, LAST_USER + 1)) and _is_capable()
    return lease.user if root else None


def command_line(bwrap: str, lease: BoxLease, folder: Folder, inherited: Sequence[int]) -> list[str]:
    """Bubblewrap, which makes the box and runs its first process. `inherited`: the descriptors that this is given."""
    return [
        bwrap,
        *_namespaces(folder.owner),
        *_file_system(lease, folder),
        *("--chdir", "/"),
        "--clearenv",
        *(system.interpreter(), "-I", "-S", "-B", "-X", "utf8", str(KEEPER)),
        *map(str, (*inherited, folder.owner or 0, *lease.limits.of_a_process())),
    ]


def _namespaces(owner: int | None) -> Iterator[str]:
    yield from ("--unshare-pid", "--as-pid-1", "--unshare-ipc", "--unshare-net", "--unshare-cgroup-try")
    yield from ("--unshare-uts", "--hostname", "box", "--new-session", "--cap-drop", "ALL")
    if owner is None:
        yield "--unshare-user"
        return
    for capability in ROOTS_CAPABILITIES:
        yield from ("--cap-add", capability)


def _file_system(lease: BoxLease, folder: Folder) -> Iterator[str]:
    for target, place in system.links():
        yield from ("--symlink", target, str(place))
    yield from ("--proc", "/proc", "--dev", "/dev")
    mounts = chain(
        [system.Mount(folder.etc, etc.HOSTS)],
        system.system(),
        (system.Mount(folder.part(place), place, writable=True) for place in WRITABLE),
        system.python(),
        system.added(lease.read_only, folder.path.parent),
        [system.Mount(Path(keeper.__file__), KEEPER)],
    )
    guards: set[Path] = set()
    for mount in mounts:
        yield from _guard(mount.place, guards)
        yield from _above(mount.place)
        yield from ("--bind" if mount.writable else "--ro-bind", str(mount.source), str(mount.place))
    if (name := system.called()) is not None:
        yield from (*_guard(name, guards), *_above(name), "--symlink", system.interpreter(), str(name))
    for guard in sorted(guards):
        yield from ("--remount-ro", str(guard))
    yield from ("--remount-ro", "/dev", "--remount-ro", "/")


def _guard(place: Path, guards: set[Path]) -> Iterator[str]:
    """For a place below what programs can write: a folder system of its own, read-only in the end, for what leads to
    it. A folder that a program can rename would let it put another one in its place.
    """
    for area in map(Path, WRITABLE):
        below = place.relative_to(area).parts if place.is_relative_to(area) else ()
        guard = area.joinpath(*below[:1])
        if len(below) > 1 and guard not in guards:
            guards.add(guard)
            yield from ("--tmpfs", str(guard))


def _above(place: Path) -> Iterator[str]:
    """Make the folders that lead to a place, which bubblewrap would make for their owner alone."""
    for folder in reversed(place.parents[:-1]):
        yield from ("--dir", str(folder))


def _is_mapped(users: range) -> bool:
    """Whether this root is one that can become these users: the root of a container may have few of its own."""
    try:
        lines = Path("/proc/self/uid_map").read_text().splitlines()
    except OSError:
        return False
    spans = [tuple(map(int, line.split())) for line in lines]
    return any(first <= users[0] and users[-1] < first + count for first, _, count in spans)


def _is_capable() -> bool:
    """Whether this root has what making and leaving namespaces takes: that of a container may have not."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return False
    has = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), 16)
    return all(has >> capability & 1 for capability in NEEDED_CAPABILITIES)


SWITCHES = {
    "/proc/sys/kernel/unprivileged_userns_clone": ("0", "sysctl kernel.unprivileged_userns_clone=1"),
    "/proc/sys/user/max_user_namespaces": ("0", "sysctl user.max_user_namespaces=10000"),
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for bwrap that allows userns",
    ),
}
"""Files in which a system says that ordinary users make no namespaces, with the value that says so and its remedy."""


def explain(name: str, said: str, exit_code: int | None) -> SandboxError:
    """Why a box did not come up, from what bubblewrap said, and what to do about it."""
    reason = said.splitlines()[-1] if said else f"it ended with {exit_code} and said nothing"
    advice = [remedy for path, (value, remedy) in SWITCHES.items() if _says(path, value)]
    if advice:
        todo = f"allow ordinary users to make namespaces: {'; '.join(advice)}"
    elif "amespace" in said or "ermission" in said or "permitted" in said or "uid map" in said:
        todo = (
            "this system does not permit it to make namespaces; in a container, start that with what it needs for it "
            "(Docker: --security-opt seccomp=unconfined --security-opt systempaths=unconfined, or --privileged)"
        )
    else:
        todo = "try its command line by hand: bwrap --unshare-all --ro-bind / / true"
    return SandboxError(f"runtime {name}: bubblewrap could not make the box: {reason}. What to do: {todo}")


def _says(path: str, value: str) -> bool:
    try:
        return Path(path).read_text().strip() == value
    except OSError:
        return False
