"""The engine inside an asyncio program: the same names, awaited from asyncio and cancelled by it, on uvloop too.

    async with rollout_fsm.aio.open_engine() as engine:
        trace = await engine.run(task, harness=…, model=…)

The engine runs on trio, as a guest of the host's loop (`guest`, `life`). What the embedder wrote runs on that loop,
unless it says `runs_on = "trio"` (`homes`, `host`); what is handed from one to the other is made callable there
(`border`). Importing this does nothing, and opening an engine patches nothing and installs no signal handler.
"""

from rollout_fsm.aio.batch import Batch
from rollout_fsm.aio.calling import on_trio
from rollout_fsm.aio.engine import Engine, open_engine
from rollout_fsm.aio.guest import EngineClosed, EngineCrashed
from rollout_fsm.aio.hosted import CancelledByHost
from rollout_fsm.aio.interaction import Interaction
from rollout_fsm.aio.rollout import Rollout
from rollout_fsm.blocking import run_rollout

__all__ = [
    "Batch",
    "CancelledByHost",
    "Engine",
    "EngineClosed",
    "EngineCrashed",
    "Interaction",
    "Rollout",
    "on_trio",
    "open_engine",
    "run_rollout",
]
