"""What programs may reach over the network: a policy says it, a runtime holds programs to it.

Here is the policy alone, as a pure decision over a host, a port and the addresses that the host's name led to. Nothing
looks a name up or opens a connection. The invariant: what is not public is reached by no policy that does not name its
very address, whatever name, spelling or translated form leads to it.
"""

from rollout_fsm.network.addresses import Address, is_public
from rollout_fsm.network.hosts import Host, endpoint, parse_host, parse_port
from rollout_fsm.network.policy import NetworkPolicy, Policies, Refusal, is_policy

__all__ = [
    "Address",
    "Host",
    "NetworkPolicy",
    "Policies",
    "Refusal",
    "endpoint",
    "is_policy",
    "is_public",
    "parse_host",
    "parse_port",
]
