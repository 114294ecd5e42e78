"""The judges of a run, from the `[[judges]]` tables of its file: which settings go with which kind, and the judges
themselves. Nothing is started here, and every fault is told with its path.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from rollout_fsm.cli.faults import UsageError
from rollout_fsm.cli.loading import is_reference, load
from rollout_fsm.cli.parts import make_model
from rollout_fsm.cli.settings import JudgeSettings, ModelSettings, Settings, said
from rollout_fsm.grading.material import BUILT_IN
from rollout_fsm.grading.numbers import Numbers
from rollout_fsm.grading.template import Template
from rollout_fsm.judge import Judge
from rollout_fsm.judges import ReferenceJudge, RubricJudge, reference, rubric
from rollout_fsm.machine.exact import suggestion
from rollout_fsm.messages import Sampling
from rollout_fsm.model import Model

__all__ = ["make_judges", "misfits", "with_prompts"]

ASKED = ("model", "base_url", "api_key_var")
"""The settings that say which model is asked."""


@frozen(kw_only=True)
class _Kind:
    judge: type[Judge]
    own: frozenset[str]
    """The settings that other kinds do not have."""
    needs: str | None = None
    placeholders: tuple[str, ...] = ()


LLM = "llm"
KINDS: Mapping[str, _Kind] = {
    LLM: _Kind(judge=Judge, own=frozenset({"choices", "schema", "field", "structured_output"}), needs="prompt"),
    "reference": _Kind(judge=ReferenceJudge, own=frozenset({"choices", "answer"}), placeholders=reference.PLACEHOLDERS),
    "rubric": _Kind(
        judge=RubricJudge,
        own=frozenset({"criteria", "structured_output"}),
        needs="criteria",
        placeholders=rubric.PLACEHOLDERS,
    ),
}
_OF_KINDS = frozenset({"options"}).union(*(kind.own for kind in KINDS.values()))


def misfits(settings: JudgeSettings) -> Iterator[tuple[str, str]]:
    """What does not go together in the settings of one judge: the setting, and what is wrong with it."""
    given, named = said(settings), settings.kind or LLM
    if settings.prompt_file is not None and settings.prompt is not None:
        yield "prompt_file", "is another way to say prompt, which is there too; keep one"
    if settings.model is None:
        for name in sorted(given.keys() & {"base_url", "api_key_var"}):
            yield name, "is about a model, and none is named; say model too"
    if is_reference(named):
        return
    kind = KINDS.get(named)
    if kind is None:
        yield "kind", f"there is no judge {named!r}{suggestion(named, KINDS)} (or write module:Class)"
        return
    for name in sorted(given.keys() & (_OF_KINDS - kind.own)):
        others = [other for other, its in KINDS.items() if name in its.own] or ["module:Class"]
        yield name, f"is for judges of kind {' and '.join(others)}, and this one is of kind {named}"
    if kind.needs is not None and not given.keys() & {kind.needs, f"{kind.needs}_file"}:
        yield kind.needs, f"missing; a judge of kind {named} needs it"
    yield from _unasked(settings, kind)


def _unasked(settings: JudgeSettings, kind: _Kind) -> Iterator[tuple[str, str]]:
    """What is wrong with the question and with the form of its answer."""
    if settings.prompt is not None:
        try:
            Template.of(settings.prompt, (*BUILT_IN, *kind.placeholders))
        except ValueError as error:
            yield "prompt", str(error)
    if settings.schema is None:
        for name in ("field", "structured_output"):
            if kind.judge is Judge and getattr(settings, name):
                yield name, "is about a schema, and there is none"
        return
    if settings.choices is not None:
        yield "choices", "the verdict is one of the choices, or what the schema says; keep one of them"
    try:
        Numbers.of(settings.schema, settings.field)
    except ValueError as error:
        yield "schema", str(error)


def with_prompts(settings: Settings) -> Settings:
    """The settings, with what is in the judges' files of prompts. Raises `UsageError` for what is no prompt."""
    judges, wrong = [], []
    for place, each in enumerate(settings.judges or ()):
        if each.prompt_file is not None:
            where = f"judges[{place}].prompt_file: {each.prompt_file}"
            try:
                text = Path(each.prompt_file).read_text("utf-8")
            except OSError as error:
                wrong.append(f"{where} cannot be read: {error.strerror}")
            except UnicodeDecodeError as error:
                wrong.append(f"{where} is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}")
            else:
                each = evolve(each, prompt=text, prompt_file=None)
                wrong += [f"{where}: {what}" for name, what in misfits(each) if name == "prompt"]
        judges.append(each)
    if wrong:
        raise UsageError(*wrong)
    return evolve(settings, judges=tuple(judges)) if judges else settings


def make_judges(
    given: Sequence[JudgeSettings], *, model: ModelSettings | None, made: Model | None = None
) -> list[Judge]:
    """The judges. `model` is the run's own, which they ask unless they say another, and `made` what was made of it;
    those who ask the same one share it. Raises `UsageError` with the faults of all of them."""
    models = {} if made is None else {model: made}
    judges: dict[str, Judge] = {}
    wrong: list[str] = []
    for place, settings in enumerate(given):
        where = f"judges[{place}]"
        try:
            judge = _made(settings, where, model, models)
        except UsageError as error:
            wrong += error.lines
            continue
        if judge.name in judges:
            wrong.append(f"{where}.name: another judge is named {judge.name!r} too; give each one of its own")
        judges[judge.name] = judge
    if wrong:
        raise UsageError(*wrong)
    return [*judges.values()]


def _made(
    settings: JudgeSettings, where: str, own: ModelSettings | None, models: dict[ModelSettings | None, Model]
) -> Judge:
    arguments: dict[str, Any] = said(settings)
    named = arguments.pop("kind", LLM)
    if settings.sampling is not None:
        arguments["sampling"] = Sampling(**said(settings.sampling))
    asked = own
    if settings.model is not None:
        asked = ModelSettings(name=settings.model, base_url=settings.base_url, api_key_var=settings.api_key_var)
    for name in ASKED:
        arguments.pop(name, None)
    if settings.model is not None or named in KINDS:
        if asked not in models:
            models[asked] = make_model(asked, at=f"{where}.")
        arguments["model"] = models[asked]
    kind = KINDS[named].judge if named in KINDS else load(named, f"{where}.kind")
    arguments |= arguments.pop("options", {})
    try:
        judge = kind(**arguments)  # type: ignore[operator]
    except Exception as error:
        raise UsageError(f"{where}: {named} cannot be made: {type(error).__name__}: {error}") from error
    if not isinstance(judge, Judge):
        raise UsageError(f"{where}.kind: {named} makes {judge!r}, not a judge; derive it from rollout_fsm.Judge")
    return judge
