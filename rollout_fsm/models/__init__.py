"""Models that are ready to use: an OpenAI-compatible endpoint, Anthropic's, a script, and a small one in this process.

Each is imported when it is first asked for; what `LocalModel` needs is looked for when it is entered.
"""

from typing import TYPE_CHECKING

from rollout_fsm.lazy_names import lazy_names

if TYPE_CHECKING:
    from rollout_fsm.models.anthropic import AnthropicModel
    from rollout_fsm.models.local import LocalModel
    from rollout_fsm.models.openai import OpenAIModel
    from rollout_fsm.models.scripted import ScriptedModel

__all__ = ["AnthropicModel", "LocalModel", "OpenAIModel", "ScriptedModel"]

if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "AnthropicModel": "rollout_fsm.models.anthropic",
            "LocalModel": "rollout_fsm.models.local",
            "OpenAIModel": "rollout_fsm.models.openai",
            "ScriptedModel": "rollout_fsm.models.scripted",
        },
    )
