"""A scripted tool server: it starts and stops as the scenario says, and serves nothing."""

from attrs import define

from rollout_fsm.simulation.scenario import ToolScript
from rollout_fsm.simulation.stage import Stage
from rollout_fsm.toolset import RolloutContext, Toolset


@define(eq=False)
class ScriptedToolset(Toolset):
    """A tool server of a scenario."""

    script: ToolScript
    stage: Stage

    @property
    def name(self) -> str:
        """The scenario's name for it."""
        return self.script.name

    async def start(self, context: RolloutContext) -> str:
        """Start, and return a URL at which nobody answers."""
        await self.stage.play(self.script.start, f"tools.start:{self.name}", f"tool_start:{self.name}")
        return f"http://{self.name}.invalid/mcp"

    async def stop(self) -> None:
        """Stop."""
        await self.stage.play(self.script.stop, f"tools.stop:{self.name}", f"tool_stop:{self.name}")
