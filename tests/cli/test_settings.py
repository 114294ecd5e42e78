"""Settings: read exactly, merged setting by setting, and written so that reading them gives the same."""

import tempfile
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.cli.config_file import read_settings, settings_to_toml
from rollout_fsm.cli.faults import UsageError
from rollout_fsm.cli.settings import (
    LimitSettings,
    ModelSettings,
    PolicySettings,
    SamplingSettings,
    Settings,
    TimeoutSettings,
    faults,
    flag,
    over,
    settle,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
JSONS = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
    ),
    max_leaves=8,
)


def maybe(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | strategy


def records(kind: type, **fields: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    made = st.builds(kind, **{name: maybe(strategy) for name, strategy in fields.items()})
    return st.none() | made.filter(lambda record: record != kind())


SECONDS = st.floats(0, 1e9)
SETTINGS = st.builds(
    Settings,
    tasks=maybe(TEXT),
    harness=maybe(TEXT),
    name=maybe(TEXT),
    num_tasks=maybe(st.integers(1, 10**6)),
    shuffle=maybe(st.booleans()),
    model=records(ModelSettings, name=TEXT, base_url=TEXT, stream=st.booleans()),
    sampling=records(
        SamplingSettings,
        temperature=st.floats(0, 2),
        seed=st.integers(-5, 5),
        stop=st.lists(TEXT, min_size=1).map(tuple),
        extra=st.dictionaries(TEXT, JSONS, min_size=1, max_size=3),
    ),
    limits=records(LimitSettings, max_turns=st.integers(0, 9)),
    timeouts=records(TimeoutSettings, agent=SECONDS | st.just(float("inf")), close=SECONDS),
    policy=records(PolicySettings, no_progress=st.sampled_from(["stop", "fail"])),
)


def reread(text: str) -> Settings:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.toml"
        path.write_text(text, encoding="utf-8", newline="")
        return read_settings(path)


@given(SETTINGS)
def test_settings_that_were_written_read_back_equal(settings: Settings) -> None:
    assert reread(settings_to_toml(settings)) == settings


def test_settings_that_a_file_cannot_carry_are_still_written_as_toml() -> None:
    settings = Settings(output_dir="half \udce4 a character")

    assert reread(settings_to_toml(settings)).output_dir == "half \ufffd a character"


@given(SETTINGS, SETTINGS)
def test_what_is_said_above_wins_and_the_rest_stands(upper: Settings, lower: Settings) -> None:
    merged = over(upper, lower)

    assert merged is not None
    for name in ("tasks", "num_tasks", "shuffle"):
        above, below = getattr(upper, name), getattr(lower, name)
        assert getattr(merged, name) == (below if above is None else above)
    assert over(upper, None) == over(None, upper) == upper
    assert over(upper, upper) == upper


@given(SETTINGS)
def test_settings_without_faults_settle(settings: Settings) -> None:
    if not list(faults(settings)):
        assert settle(settings).limits.max_turns == (settings.limits.max_turns if settings.limits else None)


def test_every_setting_of_the_command_line_is_said_by_its_flag() -> None:
    assert flag("num_tasks") == "--num-tasks"
    assert flag("model.name") == "--model"
    assert flag("timeouts.agent") == "--timeout.agent"
    assert flag("policy.agent_expiry") == "--policy.agent-expiry"
    assert flag("limits.max_total_tokens") == "--max-total-tokens"
    assert flag("tasks") == "TASKS"


def test_the_models_name_alone_will_do_for_a_table() -> None:
    assert reread('model = "local"').model == ModelSettings(name="local")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("num_tasks = 3.5", "num_tasks: expected a whole number, not 3.5 (a number)"),
        ("num_tasks = true", "num_tasks: expected a whole number, not True (true or false)"),
        ('shuffle = "yes"', "shuffle: expected true or false, not 'yes' (a string)"),
        ("model = 3", "model: expected a table, not 3 (a whole number)"),
        ("policy = 3", "policy: expected a table, not 3 (a whole number)"),
        ("[limits]\nmax_turns = -1", "limits.max_turns: must be a whole number of at least 0, not -1"),
        ("[model]\nnam = 'x'", "model.nam: unknown key; did you mean 'name'?"),
        ("[sampling]\nextra = {when = 2020-01-01}", "sampling.extra: goes to the model as JSON: when: "),
        ("timeout = {}\ntimeouts = {}", "timeout: is another word for timeouts, which is there too; keep one"),
        ("num_tasks = 1\nnum_tasks = 2", "is not TOML: Cannot overwrite a value (at "),
        ("[" * 5000, "is not TOML: "),
    ],
)
def test_a_wrong_file_is_refused_with_file_and_path(text: str, fault: str) -> None:
    with pytest.raises(UsageError) as refused:
        reread(text)

    (line,) = refused.value.lines
    path, _, said = line.partition(": ")
    assert path.endswith("run.toml")
    assert said.startswith(fault)


def test_each_number_of_the_settings_is_checked() -> None:
    wrong = Settings(
        num_tasks=0,
        rollouts_per_task=-1,
        max_concurrent=0,
        port=-1,
        limits=LimitSettings(max_turns=-1, max_input_tokens=-1, max_output_tokens=-1, max_total_tokens=-1),
        sampling=SamplingSettings(temperature=-1.0, top_p=2.0, max_tokens=0),
        timeouts=TimeoutSettings(**dict.fromkeys(attrs.fields_dict(TimeoutSettings), -1.0)),
    )

    assert len(list(faults(wrong))) == 4 + 4 + 3 + 9
