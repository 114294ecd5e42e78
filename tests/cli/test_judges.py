"""Judges in a run's file: read exactly, used by `run`, `resume` and `score`, and written down with the run."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm import Trace, read_traces
from rollout_fsm.cli.config_file import settings_to_toml
from rollout_fsm.cli.faults import UsageError
from rollout_fsm.cli.judges import make_judges
from rollout_fsm.cli.settings import JudgeSettings, ModelSettings, SamplingSettings, Settings
from rollout_fsm.judges.rubric import Criterion, criteria_of
from rollout_fsm.models import ScriptedModel
from rollout_fsm.trace import Reward
from tests.cli.conftest import ROWS, SUMS, CommandLine
from tests.cli.test_settings import JSONS, TEXT, maybe, records, reread

JUDGES = """
from attrs import define
from rollout_fsm import Judge, ScriptedModel

class Brief(Judge):
    name = "brief"

    async def score(self, task, trace):
        return float(len(trace.last_reply) < 99)

class Told(Judge):
    '''One that asks a model which says what it is told to.'''

    def __init__(self, *, says, prompt="Is it? {last_reply}", **options):
        super().__init__(model=ScriptedModel([says]), prompt=prompt, **options)

def nothing():
    return 3

def broken(**options):
    raise OSError("no judge today")
"""


def traces_in(cli: CommandLine, path: str) -> list[Trace]:
    return list(read_traces(cli.folder / path))


@pytest.fixture
def judging(cli: CommandLine) -> CommandLine:
    """With tasks, and a module of judges that each test has its own of."""
    cli.file("tasks.jsonl", ROWS)
    cli.file("sums.py", SUMS)
    return cli


def config(cli: CommandLine, text: str, name: str = "run.toml") -> str:
    module = cli.module(JUDGES)
    return cli.file(name, text.replace("MODULE", module))


TOLD = """
[[judges]]
kind = "MODULE:Brief"
weight = 0.5

[[judges]]
kind = "MODULE:Told"
name = "told"
prompt_file = "question.txt"
options = {says = "VERDICT: no"}
"""


def test_a_run_asks_them_writes_them_down_and_is_scored_again_by_them(judging: CommandLine) -> None:
    cli = judging
    cli.file("question.txt", 'Is it "polite"?\n{conversation}\n\\')
    file = config(cli, TOLD)
    said = cli("run", "tasks.jsonl", "--task", "sums:Sum", "-m", "scripted", "--config", file, "-o", "out")
    assert (said.code, said.err) == (0, "")
    wrong, right = sorted(traces_in(cli, "out/traces.jsonl"), key=lambda trace: trace.reward or 0.0)
    expected = {"brief": Reward(score=1.0, weight=0.5), "told": Reward(score=0.0)}
    assert wrong.rewards == {"correct": Reward(score=0.0), **expected}
    assert right.rewards == {"correct": Reward(score=1.0), **expected}

    (cli.folder / "question.txt").unlink()
    written = (cli.folder / "out" / "config.toml").read_text()
    assert 'prompt = """\nIs it \\"polite\\"?\n{conversation}\n' in written
    brief, told = reread(written).judges or ()
    assert (brief.weight, brief.prompt) == (0.5, None)
    assert (told.prompt, told.prompt_file, told.options) == (
        'Is it "polite"?\n{conversation}\n\\',
        None,
        {"says": "VERDICT: no"},
    )

    again = cli("score", "out", "--task", "sums:Sum")
    assert (again.code, [json.loads(line)["rewards"]["told"] for line in again.out.splitlines()]) == (
        0,
        [{"score": 0.0, "weight": 1.0}] * 2,
    )
    without = cli("score", "out", "--task", "sums:Sum", "--no-judges")
    assert [[*json.loads(line)["rewards"]] for line in without.out.splitlines()] == [["correct"]] * 2
    assert "rewards.told: nothing gives it any more (2 traces)" in without.err


def test_traces_elsewhere_are_judged_by_the_file_that_is_named(judging: CommandLine) -> None:
    cli = judging
    assert cli("run", "tasks.jsonl", "--task", "sums:Sum", "-m", "scripted", "-o", "out").code == 0
    (cli.folder / "out" / "traces.jsonl").rename(cli.folder / "moved.jsonl")
    file = config(cli, '[[judges]]\nkind = "MODULE:Brief"')
    said = cli("score", "moved.jsonl", "--task", "sums:Sum", "--config", file)
    assert [[*json.loads(line)["rewards"]] for line in said.out.splitlines()] == [["correct", "brief"]] * 2
    said = cli("score", "moved.jsonl", "--task", "sums:Sum")
    assert [[*json.loads(line)["rewards"]] for line in said.out.splitlines()] == [["correct"]] * 2


def test_what_is_wrong_with_a_judge_is_said_with_the_file_before_anything_is_scored(judging: CommandLine) -> None:
    cli = judging
    assert cli("run", "tasks.jsonl", "--task", "sums:Sum", "-m", "scripted", "-o", "out").code == 0
    file = config(cli, '[[judges]]\nprompt = "x"\n[[judges]]\nkind = "MODULE:nothing"\n[[judges]]\nkind = "no:thing"')
    said = cli("score", "out", "--task", "sums:Sum", "--config", file)
    assert said.code == 2
    first, second, third = said.err.splitlines()
    assert "run.toml: which model? name one with judges[0].model" in first
    assert "makes 3, not a judge; derive it from rollout_fsm.Judge" in second
    assert "run.toml: judges[2].kind: there is no module no" in third


def test_a_run_that_is_resumed_asks_them_too(judging: CommandLine) -> None:
    cli = judging
    file = config(cli, '[[judges]]\nkind = "MODULE:Brief"')
    run = ("run", "tasks.jsonl", "--task", "sums:Sum", "-m", "scripted", "--config", file, "-o", "out")
    assert cli(*run).code == 0
    path = cli.folder / "out" / "traces.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:1]))
    assert cli("resume", "out").code == 0
    assert [trace.rewards["brief"] for trace in traces_in(cli, "out/traces.jsonl")] == [Reward(score=1.0)] * 2


def test_a_dry_run_shows_them(judging: CommandLine) -> None:
    cli = judging
    cli.file("question.txt", "Is it? {last_reply}")
    file = cli.file(
        "run.toml",
        '[[judges]]\nname = "a"\nprompt_file = "question.txt"\nchoices = {good = 1, bad = -1.5}\n'
        '[[judges]]\nkind = "rubric"\n[judges.criteria]\nclear = "Clear?"\n',
    )
    said = cli("run", "tasks.jsonl", "--task", "sums:Sum", "-m", "scripted", "--config", file, "--dry-run")
    assert said.code == 0
    shown = reread(said.out).judges or ()
    assert shown == (
        JudgeSettings(name="a", prompt="Is it? {last_reply}", choices={"good": 1, "bad": -1.5}),
        JudgeSettings(kind="rubric", criteria=(Criterion(name="clear", text="Clear?"),)),
    )
    assert said.out.count("\n[[judges]]\n") == 2


def test_the_endpoint_that_the_surroundings_name_is_written_down_for_them_too(
    judging: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    cli = judging
    cli.file("empty.jsonl", ROWS)
    file = config(cli, '[[judges]]\nkind = "reference"\nmodel = "m"\n[[judges]]\nprompt = "?"\n' + TOLD)
    cli.file("question.txt", "?")
    run = ("run", "tasks.jsonl", "--task", "sums:Sum", "-m", "scripted", "--config", file, "-o", "out")
    assert cli(*run, "--timeout.scoring", "0").code == 0
    judges = reread((cli.folder / "out" / "config.toml").read_text()).judges or ()
    assert [judge.base_url for judge in judges] == ["http://127.0.0.1:9/v1", None, None, None]


# ---- the file


def judge(text: str) -> JudgeSettings:
    (found,) = reread(f"[[judges]]\n{text}").judges or ()
    return found


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("", ["prompt: missing; a judge of kind llm needs it"]),
        (
            'kind = "refrence"',
            ["kind: there is no judge 'refrence'; did you mean 'reference'? (or write module:Class)"],
        ),
        ('kind = "rubric"', ["criteria: missing; a judge of kind rubric needs it"]),
        ('kind = "rubric"\ncriteria = []', ["criteria: there is no criterion"]),
        ('kind = "rubric"\ncriteria = {a = 3}', ["criteria[0].text: expected a string, not 3 (a whole number)"]),
        (
            'kind = "rubric"\ncriteria = [{name = "a"}, {name = "b", text = "?", weight = -1}, {name = ""}]',
            [
                "criteria[0].text: missing",
                "criteria[1].weight: the weight of a criterion is a finite number of at least 0, not -1",
                "criteria[2].name: a criterion needs a name and a text, not ''",
                "criteria[2].text: missing",
            ],
        ),
        ('prompt = "?"\nprompts = "?"', ["prompts: unknown key; did you mean 'prompt'?"]),
        (
            'prompt = "?"\nprompt_file = "x"',
            ["prompt_file: is another way to say prompt, which is there too; keep one"],
        ),
        (
            'prompt = "{anser}"\nbase_url = "x"\napi_key_var = "K"\nanswer = "a"\noptions = {a = 1}',
            [
                "answer: is for judges of kind reference, and this one is of kind llm",
                "api_key_var: is about a model, and none is named; say model too",
                "base_url: is about a model, and none is named; say model too",
                "options: is for judges of kind module:Class, and this one is of kind llm",
                "prompt: the prompt has a placeholder that is not known: {anser}; there are",
            ],
        ),
        (
            'kind = "reference"\nfield = "a"\ncriteria = {a = "?"}\nstructured_output = true',
            [
                "criteria: is for judges of kind rubric, and this one is of kind reference",
                "field: is for judges of kind llm, and this one is of kind reference",
                "structured_output: is for judges of kind llm and rubric, and this one is of kind reference",
            ],
        ),
        (
            'prompt = "?"\nfield = "a"\nstructured_output = true',
            ["field: is about a schema, and there is none", "structured_output: is about a schema, and there is none"],
        ),
        (
            'prompt = "?"\nchoices = {a = 1, b = 0}\nschema = {type = "object"}',
            [
                "choices: the verdict is one of the choices, or what the schema says",
                "schema: the schema is to be of an",
            ],
        ),
        ('prompt = "?"\nchoices = {a = 1}', ["choices: choices are two words or more"]),
        ('prompt = "?"\nchoices = {a = "1"}', ["choices[a]: expected a number, not '1' (a string)"]),
        (
            'prompt = ""\nweight = inf\nattempts = 0\nmax_concurrent = 1.5\nname = 3\nsampling = {top_p = 3}',
            [
                "attempts: must be a whole number of at least 1, not 0",
                "max_concurrent: expected a whole number, not 1.5 (a number)",
                "name: expected a string, not 3 (a whole number)",
                "prompt: is empty; leave it out, or say something",
                "sampling.top_p: must be between 0 and 1, not 3",
                "weight: must be a finite number, not inf",
            ],
        ),
    ],
)
def test_every_fault_of_a_judge_is_told_with_its_path(text: str, faults: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        reread(f'[[judges]]\nprompt = "fine"\n[[judges]]\n{text}')
    lines = sorted(line.partition("judges[1].")[2] for line in refused.value.lines)
    assert len(lines) == len(faults)
    for line, fault in zip(lines, faults, strict=True):
        assert line.startswith(fault)


@pytest.mark.parametrize("text", ["judges = 3", "judges = {}", "judges = [3]"])
def test_judges_are_tables(text: str) -> None:
    with pytest.raises(UsageError, match=r"judges(\[0\])?: expected an? (array|table)"):
        reread(text)


SETTINGS = st.builds(
    JudgeSettings,
    kind=st.just("my.judges:Strict"),
    name=maybe(TEXT),
    weight=maybe(st.floats(allow_nan=False, allow_infinity=False)),
    model=TEXT,
    prompt=maybe(TEXT),
    schema=maybe(st.dictionaries(TEXT, JSONS, min_size=1)),
    criteria=maybe(st.dictionaries(TEXT.filter(lambda name: name != "reasons"), TEXT, min_size=1).map(criteria_of)),
    structured_output=maybe(st.booleans()),
    attempts=maybe(st.integers(1, 9)),
    sampling=records(SamplingSettings, temperature=st.floats(0, 2), extra=st.dictionaries(TEXT, JSONS, min_size=1)),
    options=maybe(st.dictionaries(TEXT, JSONS, min_size=1)),
)


@given(st.lists(SETTINGS, min_size=1, max_size=3).map(tuple), maybe(TEXT))
def test_judges_that_were_written_read_back_equal(judges: tuple[JudgeSettings, ...], name: Any) -> None:
    settings = Settings(judges=judges, name=name, model=ModelSettings(name="m"))
    assert reread(settings_to_toml(settings)) == settings


# ---- the judges


def test_those_who_ask_the_same_model_share_it_and_others_do_not() -> None:
    own, run = ScriptedModel(["yes"]), ModelSettings(name="scripted")
    settings = [
        judge('prompt = "?"\nname = "a"'),
        judge('prompt = "?"\nname = "b"\nmodel = "scripted"'),
        judge('kind = "reference"\nmodel = "local-7b"\nbase_url = "http://127.0.0.1:1/v1"'),
        judge(
            'kind = "rubric"\nmodel = "local-7b"\nbase_url = "http://127.0.0.1:1/v1"\ncriteria = [{name="a",text="?"}]'
        ),
    ]
    a, b, reference, rubric = make_judges(settings, model=run, made=own)
    assert a.model is b.model is own
    assert reference.model is rubric.model is not own
    assert reference.model is not None
    assert (reference.name, reference.model.name, rubric.name) == ("reference", "local-7b", "rubric")


def test_a_judge_is_made_as_its_settings_say() -> None:
    (made,) = make_judges(
        [judge('prompt = "?"\nweight = 2\nchoices = {a = 1, b = 0}\nattempts = 3\nsampling = {temperature = 0}')],
        model=None,
        made=ScriptedModel([]),
    )
    assert (made.weight, made._attempts, made._sampling.temperature) == (2, 3, 0)


@pytest.mark.parametrize(
    ("texts", "faults"),
    [
        (['prompt = "?"'] * 2, ["judges[1].name: another judge is named 'judge' too; give each one of its own"]),
        (
            ['prompt = "?"\nmodel = "scripted"\nbase_url = "x"'],
            ["judges[0].model scripted runs in this process and takes"],
        ),
        (
            ['prompt = "?"\nmodel = "m"\napi_key_var = "NO_SUCH"'],
            ["judges[0].api_key_var: the environment variable NO_S"],
        ),
        (['prompt = "?"\nmodel = "m"'], ["judges[0].model m: no key for https://api.openai.com/v1"]),
        (
            ['kind = "json:dumps"', 'kind = "json:nope"'],
            ["judges[0]: json:dumps cannot be made: TypeError: ", "judges[1]."],
        ),
    ],
)
def test_judges_that_cannot_be_made_are_told_all_at_once(
    texts: list[str], faults: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(UsageError) as refused:
        make_judges([judge(text) for text in texts], model=None, made=ScriptedModel([]))
    assert len(refused.value.lines) == len(faults)
    for line, fault in zip(refused.value.lines, faults, strict=True):
        assert line.startswith(fault)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\xff", "is not UTF-8: byte 0 is 0xff"),
        (b"{anser}", "the prompt has a placeholder that is not known: {anser}"),
        (b" ", "the prompt is to be a text that asks for a verdict"),
    ],
)
def test_a_prompt_file_that_holds_no_prompt_is_refused(judging: CommandLine, content: bytes | None, fault: str) -> None:
    cli, path = judging, Path("question.txt")
    if content is not None:
        (cli.folder / path).write_bytes(content)
    file = cli.file("run.toml", f'[[judges]]\nprompt_file = "{path}"')
    said = cli("run", "tasks.jsonl", "--task", "sums:Sum", "-m", "scripted", "--config", file, "-o", "out")
    assert said.code == 2
    assert "judges[0].prompt_file: question.txt" in said.err
    assert fault in said.err
    assert not (cli.folder / "out").exists()
