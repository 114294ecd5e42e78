"""A run as it was asked for, made ready: settings settled, tasks read, parts made, folder chosen. Nothing is started
or written.

What `run` settles is what `resume` goes by, so both are made here, and what is written down is enough to make the very
same run again.
"""

import os
import re
import secrets
import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from attrs import asdict, evolve, frozen

from rollout_fsm.cli.before import Before
from rollout_fsm.cli.faults import UnwrittenError, UsageError
from rollout_fsm.cli.judges import make_judges, with_prompts
from rollout_fsm.cli.parts import MODELS, endpoint_variable, make_harness, make_model, make_retry
from rollout_fsm.cli.runtimes import make_runtime
from rollout_fsm.cli.settings import LimitSettings, ModelSettings, OriginSettings, Settings, over, settle
from rollout_fsm.cli.task_rows import read_tasks, selected, task_class
from rollout_fsm.example import EXAMPLE_LIMITS, example_tasks
from rollout_fsm.models.faults import shown_url
from rollout_fsm.models.openai import OpenAIModel
from rollout_fsm.output import TRACES
from rollout_fsm.settings import AgentSettings
from rollout_fsm.task import Task

__all__ = ["CONFIG", "LOG", "Prepared", "prepare", "prepared_from", "recorded", "resume_line"]

OUTPUTS = "outputs"
CONFIG = "config.toml"
LOG = "logs/run.log"


@frozen(kw_only=True, eq=False)
class Prepared:
    """Everything that a run needs."""

    settings: Settings
    """Settled: defaults are in, but for those that would hide what a task says."""
    tasks: Sequence[Task]
    agent: AgentSettings
    run_id: str
    """What tells this run from others of its name; on every trace, and the name of its folder if it was given none."""
    folder: Path
    shown: Path
    """The folder as the user calls it."""
    before: Before | None = None
    """What an earlier process of the run has done; None for a new run."""

    @property
    def name(self) -> str:
        """What the run is called."""
        return self.settings.name or ""

    @property
    def rollouts_per_task(self) -> int:
        """Rollouts of each task."""
        return self.settings.rollouts_per_task or 1

    @property
    def total(self) -> int:
        """Rollouts in all."""
        return len(self.tasks) * self.rollouts_per_task


def prepare(said: Settings) -> Prepared:
    """Settle what was said. Raises `UsageError` for whatever cannot be."""
    settings = _with_defaults(evolve(said, origin=None))
    run_id = f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    folder = _folder(settings, run_id)
    return prepared_from(settings, run_id=run_id, folder=folder, shown=folder)


def prepared_from(said: Settings, *, run_id: str, folder: Path, shown: Path) -> Prepared:
    """The run of these settings. Raises `UsageError` for whatever cannot be."""
    settings = with_prompts(_with_defaults(said))
    if settings.tasks is None:
        if settings.task is not None:
            raise UsageError(f"--task {settings.task} needs a file of tasks: rollout-fsm run TASKS.jsonl --task …")
        tasks: Sequence[Task] = example_tasks()
    else:
        tasks = read_tasks(Path(settings.tasks), task_class(settings.task))
    tasks = selected(
        tasks, num_tasks=settings.num_tasks, shuffle=bool(settings.shuffle), seed=settings.shuffle_seed or 0
    )
    settled = settle(settings)
    agent = AgentSettings(
        harness=make_harness(settings.harness or ""),
        model=make_model(settings.model),
        runtime=make_runtime(settings.runtime or "", settings.network, settings.box),
        limits=settled.limits,
        timeouts=settled.timeouts,
        policy=settled.policy,
        sampling=settled.sampling,
        retry=make_retry(settings.retry),
    )
    agent["judges"] = make_judges(settings.judges or (), model=settings.model, made=agent["model"])
    return Prepared(settings=settings, tasks=tasks, agent=agent, run_id=run_id, folder=folder, shown=shown)


def recorded(prepared: Prepared) -> Settings:
    """The settings as they are written down: with what the surroundings said, so that `resume` need not guess."""
    settings, endpoint = prepared.settings, None
    url = os.environ.get(endpoint_variable(settings.model), "").strip()
    if url and shown_url(url) == url:
        settings = _model_at(settings, url)
    elif url and _model_at(settings, url) != settings:  # a password or a key is in it
        endpoint = shown_url(url)
    url = os.environ.get(OpenAIModel.BASE_URL_VAR, "").strip()
    if url and shown_url(url) == url:
        settings = _judges_at(settings, url)
    return evolve(settings, origin=OriginSettings(folder=str(Path.cwd()), run=prepared.run_id, endpoint=endpoint))


def _model_at(settings: Settings, url: str) -> Settings:
    """The settings, with this endpoint for the model, if it asks one and says none."""
    model = settings.model
    if model is None or model.name in MODELS or model.base_url is not None:
        return settings
    return evolve(settings, model=evolve(model, base_url=url))


def _judges_at(settings: Settings, url: str) -> Settings:
    """The settings, with this endpoint for each judge that asks one and says none."""
    if settings.judges is None:
        return settings
    judges = tuple(
        evolve(judge, base_url=url)
        if judge.model is not None and judge.model not in MODELS and judge.base_url is None
        else judge
        for judge in settings.judges
    )
    return evolve(settings, judges=judges)


def resume_line(folder: Path) -> str:
    """The command that goes on with the run of a folder."""
    return f"rollout-fsm resume {shlex.quote(str(folder))}"


def _with_defaults(said: Settings) -> Settings:
    if said.tasks is None:
        limits = LimitSettings(**asdict(EXAMPLE_LIMITS))
        example = Settings(name="example", harness="example", model=ModelSettings(name="scripted"), limits=limits)
        if said.model is not None and said.model.name is None:
            example = evolve(example, model=None)  # an endpoint was said: it is to be asked which model
        said = over(said, example) or said
    name = Path(said.tasks).stem if said.tasks is not None else None
    general = Settings(
        name=name,
        harness="chat",
        runtime="local",
        rollouts_per_task=1,
        max_concurrent=32,
        shuffle_seed=0 if said.shuffle else None,
        host="127.0.0.1",
        port=0,
    )
    return over(said, general) or said


def _folder(settings: Settings, run_id: str) -> Path:
    if settings.output_dir is None:
        called = re.sub(r"[^\w.-]+", "-", settings.name or "").strip(".-") or "run"
        return Path(OUTPUTS) / called / run_id
    folder = Path(settings.output_dir)
    try:
        holds, described, is_file = (
            (folder / TRACES).exists(),
            (folder / CONFIG).exists(),
            folder.exists() and not folder.is_dir(),
        )
    except OSError as error:
        raise UnwrittenError(f"the folder {folder} cannot be written: {error.strerror}; name another one") from error
    if holds:
        raise UsageError(
            f"--output-dir: {folder} already holds a run ({TRACES}); go on with it by `{resume_line(folder)}`, or name "
            f"another folder"
        )
    if described:
        raise UsageError(f"--output-dir: {folder} already holds a run ({CONFIG}); name another folder")
    if is_file:
        raise UsageError(f"--output-dir: {folder} is a file; name a folder for the run")
    return folder
