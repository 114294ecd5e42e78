"""Command lines with placeholders."""

import pytest

from rollout_fsm import HarnessError, ProgramHarness
from rollout_fsm.harnesses.command import LONGEST, command, fill, placeholders, program_name, transportable


def test_a_text_is_split_as_a_shell_splits_it_and_a_list_is_taken_as_it_is() -> None:
    assert command("agent --say 'two words' \"and more\"") == ("agent", "--say", "two words", "and more")
    assert command(["agent", "'as it is'"]) == ("agent", "'as it is'")


@pytest.mark.parametrize(
    ("argv", "error", "why"),
    [
        ("agent 'open", ValueError, 'the command line "agent \'open" cannot be split: No closing quotation'),
        ("", ValueError, "the command line is empty; its first item names the program"),
        ([], ValueError, "the command line is empty; its first item names the program"),
        ([""], ValueError, "the command line is empty; its first item names the program"),
        (["agent", 7], TypeError, "a command line is a text or a list of texts; 7 is a int"),
        ("{prompt} -v", ValueError, "the first item of the command line names the program, which cannot be '{prompt}'"),
    ],
)
def test_a_command_line_that_names_no_program_is_refused(
    argv: str | list[str], error: type[Exception], why: str
) -> None:
    with pytest.raises(error) as refused:
        ProgramHarness(argv)
    assert str(refused.value) == why


def test_placeholders_are_filled_once_and_other_braces_stay() -> None:
    text = '{prompt} {"a": {b}} ${HOME} {prompt_file}{python}'
    assert placeholders([text, "{conversation}"]) == {"prompt", "prompt_file", "python", "conversation"}
    filled = fill(text, {"prompt": "{python}", "prompt_file": "p.txt", "python": "py"})
    assert filled == '{python} {"a": {b}} ${HOME} p.txtpy'


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        ("/usr/bin/my-agent --flag", "my-agent"),
        ("{python} -I tools/agent.py {prompt}", "agent.py"),
        ("python3.11 -u -m my.agent", "my.agent"),
        ("/opt/python3 agent.py", "agent.py"),
        ("python -c 'print(1)' x", "python"),
        ("python", "python"),
        ("python-agent x", "python-agent"),
    ],
)
def test_a_harness_is_named_after_its_program(argv: str, name: str) -> None:
    assert program_name(command(argv)) == name
    assert ProgramHarness(argv).name == name
    assert repr(ProgramHarness(argv)) == f"<ProgramHarness {name}>"


def test_a_name_of_its_own_wins() -> None:
    assert ProgramHarness("agent", name="mine").name == "mine"


def test_what_a_program_can_be_given_has_a_largest_size_and_no_nul() -> None:
    longest = "é" * (LONGEST // 2) + "x"
    assert transportable(longest, "it", "shorten it") is longest
    for text, why in (
        (longest + "x", f"it has {LONGEST + 1} bytes, and no program can be given more than {LONGEST} that way"),
        ("a\0b", "it holds a NUL character, which no program can be given that way"),
        ("\ud800", "it holds a character that is no text ("),
    ):
        with pytest.raises(HarnessError) as refused:
            transportable(text, "it", "shorten it")
        assert str(refused.value).startswith(why)
        assert str(refused.value).endswith("; shorten it")


def test_settings_that_make_no_sense_are_refused_when_the_harness_is_made() -> None:
    with pytest.raises(ValueError, match=r"prompt must be one of 'argument', 'stdin', 'file', not 'telepathy'"):
        ProgramHarness("agent", prompt="telepathy")  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match=r"env cannot set OPENAI_API_KEY: it leads the program to the rollout's own model"
    ):
        ProgramHarness("agent", env={"OPENAI_API_KEY": "mine"})
    with pytest.raises(TypeError, match=r"env maps names to texts; 'LEVEL' is mapped to 3"):
        ProgramHarness("agent", env={"LEVEL": 3})  # type: ignore[dict-item]
    with pytest.raises(
        TypeError, match=r"files maps places in the workspace to a Path, bytes or text; 'a.txt' has None"
    ):
        ProgramHarness("agent", files={"a.txt": None})  # type: ignore[dict-item]
