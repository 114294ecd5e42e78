"""An engine for LLM-agent rollouts: a lifecycle that is declared, executed from its declaration, proven and drawn.

These are the names that embedders use. Each module is imported when a name of it is first asked for, so that a program
pays for what it uses: importing the package alone loads no event loop, no HTTP client and no machine.
"""

import logging
from typing import TYPE_CHECKING

from rollout_fsm.lazy_names import lazy_names

if TYPE_CHECKING:
    from rollout_fsm.activity import Activity
    from rollout_fsm.batch import Batch
    from rollout_fsm.blocking import run_rollout
    from rollout_fsm.conformance import check_trace
    from rollout_fsm.ending import ending_of
    from rollout_fsm.engine import Engine, open_engine
    from rollout_fsm.errors import (
        ErrorRecord,
        HarnessError,
        IllegalTransition,
        InterceptionError,
        OverlongPromptError,
        ProviderError,
        RolloutBusyError,
        RolloutError,
        RuntimeLifetimeError,
        SandboxError,
        TaskError,
        ToolsetError,
        TurnRefused,
    )
    from rollout_fsm.harness import Exchange, Harness, HarnessSession
    from rollout_fsm.harnesses import ChatHarness, ProgramHarness
    from rollout_fsm.hooks import intercept, metric, reward, stop
    from rollout_fsm.interaction import Interaction, Segment
    from rollout_fsm.judge import Judge
    from rollout_fsm.judges import Criterion, ReferenceJudge, RubricJudge
    from rollout_fsm.limits import RolloutLimits, RolloutPolicy, RolloutTimeouts
    from rollout_fsm.machine import check_machine, load_machine
    from rollout_fsm.machine.endings import Ending, EndingChange, EndingRow, Endings
    from rollout_fsm.machine.endings_file import load_endings
    from rollout_fsm.messages import (
        AssistantMessage,
        ImagePart,
        Message,
        Request,
        Response,
        Sampling,
        SystemMessage,
        TextPart,
        Tool,
        ToolCall,
        ToolMessage,
        Usage,
        UserMessage,
    )
    from rollout_fsm.model import Model
    from rollout_fsm.models import AnthropicModel, LocalModel, OpenAIModel, ScriptedModel
    from rollout_fsm.network import NetworkPolicy
    from rollout_fsm.rescoring import Rescored, Skipped
    from rollout_fsm.retry import RetryPolicy
    from rollout_fsm.rollout import Rollout
    from rollout_fsm.runtime import ProgramResult, Runtime
    from rollout_fsm.runtimes import LocalRuntime
    from rollout_fsm.runtimes.bubblewrap import BoxLimits, BubblewrapRuntime
    from rollout_fsm.runtimes.docker import DockerRuntime
    from rollout_fsm.task import Task
    from rollout_fsm.toolset import RolloutContext, Toolset, tool
    from rollout_fsm.toolsets.remote import HttpToolset
    from rollout_fsm.toolsets.shared import SharedToolset
    from rollout_fsm.toolsets.stdio import StdioToolset
    from rollout_fsm.trace import GroupInfo, Trace
    from rollout_fsm.trace_json import trace_from_json, trace_to_json
    from rollout_fsm.traces_file import read_traces

__all__ = [
    "Activity",
    "AnthropicModel",
    "AssistantMessage",
    "Batch",
    "BoxLimits",
    "BubblewrapRuntime",
    "ChatHarness",
    "Criterion",
    "DockerRuntime",
    "Ending",
    "EndingChange",
    "EndingRow",
    "Endings",
    "Engine",
    "ErrorRecord",
    "Exchange",
    "GroupInfo",
    "Harness",
    "HarnessError",
    "HarnessSession",
    "HttpToolset",
    "IllegalTransition",
    "ImagePart",
    "Interaction",
    "InterceptionError",
    "Judge",
    "LocalModel",
    "LocalRuntime",
    "Message",
    "Model",
    "NetworkPolicy",
    "OpenAIModel",
    "OverlongPromptError",
    "ProgramHarness",
    "ProgramResult",
    "ProviderError",
    "ReferenceJudge",
    "Request",
    "Rescored",
    "Response",
    "RetryPolicy",
    "Rollout",
    "RolloutBusyError",
    "RolloutContext",
    "RolloutError",
    "RolloutLimits",
    "RolloutPolicy",
    "RolloutTimeouts",
    "RubricJudge",
    "Runtime",
    "RuntimeLifetimeError",
    "Sampling",
    "SandboxError",
    "ScriptedModel",
    "Segment",
    "SharedToolset",
    "Skipped",
    "StdioToolset",
    "SystemMessage",
    "Task",
    "TaskError",
    "TextPart",
    "Tool",
    "ToolCall",
    "ToolMessage",
    "Toolset",
    "ToolsetError",
    "Trace",
    "TurnRefused",
    "Usage",
    "UserMessage",
    "check_machine",
    "check_trace",
    "ending_of",
    "intercept",
    "load_endings",
    "load_machine",
    "metric",
    "open_engine",
    "read_traces",
    "reward",
    "run_rollout",
    "stop",
    "tool",
    "trace_from_json",
    "trace_to_json",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Batch": "rollout_fsm.batch",
            "run_rollout": "rollout_fsm.blocking",
            "check_trace": "rollout_fsm.conformance",
            "ending_of": "rollout_fsm.ending",
            "Engine": "rollout_fsm.engine",
            "open_engine": "rollout_fsm.engine",
            "ErrorRecord": "rollout_fsm.errors",
            "HarnessError": "rollout_fsm.errors",
            "IllegalTransition": "rollout_fsm.errors",
            "InterceptionError": "rollout_fsm.errors",
            "OverlongPromptError": "rollout_fsm.errors",
            "ProviderError": "rollout_fsm.errors",
            "RolloutBusyError": "rollout_fsm.errors",
            "RolloutError": "rollout_fsm.errors",
            "RuntimeLifetimeError": "rollout_fsm.errors",
            "SandboxError": "rollout_fsm.errors",
            "TaskError": "rollout_fsm.errors",
            "ToolsetError": "rollout_fsm.errors",
            "TurnRefused": "rollout_fsm.errors",
            "Exchange": "rollout_fsm.harness",
            "Harness": "rollout_fsm.harness",
            "HarnessSession": "rollout_fsm.harness",
            "ChatHarness": "rollout_fsm.harnesses",
            "ProgramHarness": "rollout_fsm.harnesses",
            "intercept": "rollout_fsm.hooks",
            "metric": "rollout_fsm.hooks",
            "reward": "rollout_fsm.hooks",
            "stop": "rollout_fsm.hooks",
            "Interaction": "rollout_fsm.interaction",
            "Segment": "rollout_fsm.interaction",
            "Judge": "rollout_fsm.judge",
            "Criterion": "rollout_fsm.judges",
            "ReferenceJudge": "rollout_fsm.judges",
            "RubricJudge": "rollout_fsm.judges",
            "RolloutLimits": "rollout_fsm.limits",
            "RolloutPolicy": "rollout_fsm.limits",
            "RolloutTimeouts": "rollout_fsm.limits",
            "Activity": "rollout_fsm.activity",
            "check_machine": "rollout_fsm.machine.check",
            "load_machine": "rollout_fsm.machine",
            "Ending": "rollout_fsm.machine.endings",
            "EndingChange": "rollout_fsm.machine.endings",
            "EndingRow": "rollout_fsm.machine.endings",
            "Endings": "rollout_fsm.machine.endings",
            "load_endings": "rollout_fsm.machine.endings_file",
            "AssistantMessage": "rollout_fsm.messages",
            "ImagePart": "rollout_fsm.messages",
            "Message": "rollout_fsm.messages",
            "Request": "rollout_fsm.messages",
            "Response": "rollout_fsm.messages",
            "Sampling": "rollout_fsm.messages",
            "SystemMessage": "rollout_fsm.messages",
            "TextPart": "rollout_fsm.messages",
            "Tool": "rollout_fsm.messages",
            "ToolCall": "rollout_fsm.messages",
            "ToolMessage": "rollout_fsm.messages",
            "Usage": "rollout_fsm.messages",
            "UserMessage": "rollout_fsm.messages",
            "Model": "rollout_fsm.model",
            "AnthropicModel": "rollout_fsm.models",
            "LocalModel": "rollout_fsm.models",
            "OpenAIModel": "rollout_fsm.models",
            "ScriptedModel": "rollout_fsm.models",
            "NetworkPolicy": "rollout_fsm.network",
            "Rescored": "rollout_fsm.rescoring",
            "Skipped": "rollout_fsm.rescoring",
            "RetryPolicy": "rollout_fsm.retry",
            "Rollout": "rollout_fsm.rollout",
            "ProgramResult": "rollout_fsm.runtime",
            "Runtime": "rollout_fsm.runtime",
            "BoxLimits": "rollout_fsm.runtimes.bubblewrap",
            "BubblewrapRuntime": "rollout_fsm.runtimes.bubblewrap",
            "DockerRuntime": "rollout_fsm.runtimes.docker",
            "LocalRuntime": "rollout_fsm.runtimes",
            "Task": "rollout_fsm.task",
            "RolloutContext": "rollout_fsm.toolset",
            "Toolset": "rollout_fsm.toolset",
            "tool": "rollout_fsm.toolset",
            "HttpToolset": "rollout_fsm.toolsets.remote",
            "SharedToolset": "rollout_fsm.toolsets.shared",
            "StdioToolset": "rollout_fsm.toolsets.stdio",
            "GroupInfo": "rollout_fsm.trace",
            "Trace": "rollout_fsm.trace",
            "trace_from_json": "rollout_fsm.trace_json",
            "trace_to_json": "rollout_fsm.trace_json",
            "read_traces": "rollout_fsm.traces_file",
        },
    )

logging.getLogger("rollout_fsm").addHandler(logging.NullHandler())
