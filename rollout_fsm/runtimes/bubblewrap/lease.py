"""What another process needs to know of a `BubblewrapRuntime`: where its folder is, and how its box was made, so that
one like it can be made around the same files.
"""

from attrs import frozen

from rollout_fsm.network import NetworkPolicy, Policies
from rollout_fsm.runtimes.bubblewrap.limits import BoxLimits
from rollout_fsm.runtimes.leases import FolderLease

FIRST_USER, LAST_USER = 0x70000000, 0x7FFFFFFE
"""User ids that no distribution gives to anybody."""


@frozen(kw_only=True)
class BoxLease(FolderLease):
    """The lease of a `BubblewrapRuntime`."""

    KIND = "BubblewrapRuntime"

    limits: BoxLimits
    read_only: tuple[str, ...] = ()
    network: NetworkPolicy
    """The runtime's own."""
    task_network: NetworkPolicy | None = None
    """That of the task that uses it."""
    setup_network: NetworkPolicy

    @property
    def policies(self) -> Policies:
        """Those of the execution."""
        return Policies((self.network, *(() if self.task_network is None else (self.task_network,))))

    @property
    def user(self) -> int:
        """The user id that the box's programs have where the engine is root: nobody else's."""
        return FIRST_USER + int(self.token, 16) % (LAST_USER - FIRST_USER + 1)
