"""What another process needs to know of a `BubblewrapRuntime`: where its folder is, and how its box was made, so that
one like it can be made around the same files.
"""

from attrs import field, frozen

from rollout_fsm.network import NetworkPolicy
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
    network: tuple[NetworkPolicy, ...] = ()
    setup_network: NetworkPolicy = field(factory=NetworkPolicy)

    @property
    def user(self) -> int:
        """The user id that the box's programs have where the engine is root: nobody else's."""
        return FIRST_USER + int(self.token, 16) % (LAST_USER - FIRST_USER + 1)
