"""The contract of a task: a row of data and its behaviour.

Fields are the row, as a JSONL file has it; methods are what the task does. A subclass is an attrs class:

    @frozen(kw_only=True)
    class Sum(Task):
        answer: str
"""

import json
from collections.abc import Sequence
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING

from attrs import Attribute, asdict, field, frozen, validators

from rollout_fsm.foreign import optional
from rollout_fsm.judge import Judge
from rollout_fsm.limits import RolloutTimeouts
from rollout_fsm.message_json import Said, as_messages
from rollout_fsm.messages import JSON, Message
from rollout_fsm.network import NetworkPolicy, is_policy
from rollout_fsm.runtime import Runtime
from rollout_fsm.toolset import Toolset

if TYPE_CHECKING:
    from rollout_fsm.trace import Trace


def _prompt(given: Said | None) -> str | tuple[Message, ...] | None:
    return given if given is None or isinstance(given, str) else as_messages(given)


def _is_content(attribute: "Attribute[object]", value: object) -> bool:
    """Whether a field counts in the hash. One that was added later counts where it says something."""
    return attribute.name not in ("idx", "timeouts") and not (attribute.name == "network" and value is None)


@frozen(kw_only=True)
class Task:
    """A task. Hooks (`@stop`, `@intercept`) and signals (`@reward`, `@metric`) are decorated methods of a subclass."""

    prompt: str | tuple[Message, ...] | None = field(default=None, converter=_prompt)
    """What opens the conversation: text, messages, or dicts as chat formats have them; None if a user opens it (L1)."""
    system_prompt: str | None = None
    name: str | None = None
    idx: int | None = None
    """The task's place in its set."""
    timeouts: RolloutTimeouts | None = None
    """The task's own bounds; the run's win (L2)."""
    network: NetworkPolicy | None = field(default=None, validator=validators.optional(is_policy))
    """What programs of the execution may reach, beside what their runtime's own policy keeps from them, and beside the
    framework's own routes, which stay open (L5). None: whatever the runtime lets them reach."""

    @optional
    async def setup(self, trace: "Trace", runtime: Runtime) -> None:
        """Prepare the world for the agent. Shares `timeouts.setup` with the harness's setup (L4)."""

    @optional
    async def finalize(self, trace: "Trace", runtime: Runtime) -> None:
        """Collect what scoring needs, after the exchange and before any signal (L50). Bounded by
        `timeouts.finalize`."""

    def toolsets(self) -> Sequence[Toolset]:
        """The tool servers of one rollout, built anew for each (L5)."""
        return ()

    def judges(self) -> Sequence[Judge]:
        """Judges whose verdicts are rewards (L63)."""
        return ()

    @cached_property
    def opening(self) -> tuple[Message, ...]:
        """The prompt as messages, empty if there is none."""
        return () if self.prompt is None else as_messages(self.prompt)

    @cached_property
    def hash(self) -> str:
        """Content hash of the row: 32 hex digits. The place in the set and the bounds are no content; a network policy
        is, being the world that the task is solved in."""
        row: dict[str, JSON] = asdict(self, filter=_is_content)
        text = json.dumps([type(self).__qualname__, row], sort_keys=True, default=repr)
        return blake2b(text.encode(), digest_size=16).hexdigest()

    @property
    def key(self) -> str:
        """The task's identity across runs; its hash unless a subclass says otherwise."""
        return self.hash
