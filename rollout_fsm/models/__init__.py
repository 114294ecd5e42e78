"""Models that are ready to use: an OpenAI-compatible endpoint, Anthropic's, a script, and a small one in this process.

Nothing heavy is imported here; what `LocalModel` needs is looked for when it is entered.
"""

from rollout_fsm.models.anthropic import AnthropicModel
from rollout_fsm.models.local import LocalModel
from rollout_fsm.models.openai import OpenAIModel
from rollout_fsm.models.scripted import ScriptedModel

__all__ = ["AnthropicModel", "LocalModel", "OpenAIModel", "ScriptedModel"]
