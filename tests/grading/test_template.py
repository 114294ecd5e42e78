"""Templates: known placeholders are filled, all else is text, and what is put in is never read as a template."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.grading import Template

KNOWN = ("conversation", "last_reply")
NAMES = st.sampled_from((*KNOWN, "task.answer"))
BRACES = st.text(st.sampled_from("{} .a\n"))


def filled(text: str, value: str = "X") -> str:
    return Template.of(text, KNOWN).filled(lambda name: f"<{name}={value}>")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a {last_reply} b", "a <last_reply=X> b"),
        ("{last_reply}{conversation}{last_reply}", "<last_reply=X><conversation=X><last_reply=X>"),
        ("{task.answer}", "<task.answer=X>"),
        ("{{last_reply}} is {last_reply}", "{last_reply} is <last_reply=X>"),
        ("{{nobody_knows}}", "{nobody_knows}"),
        ("a { b } c {} d", "a { b } c {} d"),
        ('{"score": {"a": 1}}', '{"score": {"a": 1}}'),
        ("{ last_reply }", "{ last_reply }"),
        ("{0} {1a} {a-b} {a.} {a!r} {a:>3}", "{0} {1a} {a-b} {a.} {a!r} {a:>3}"),
        ("{{{last_reply}}}", "{{last_reply}}"),
    ],
)
def test_placeholders_are_filled_and_other_braces_are_text(text: str, expected: str) -> None:
    assert filled(text) == expected


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{last_repli}", "{last_repli}; did you mean 'last_reply'?"),
        ("{answer}", "{answer}; there are conversation, last_reply, task.FIELD"),
        ("{task}", "{task}; there are"),
        ("{task.}", None),
        ("{task._secret}", "{task._secret}; "),
        ("{task.a.b}", "{task.a.b}; "),
        ("{last_reply.x}", "{last_reply.x}; did you mean 'last_reply'?"),
        ("{a} {b}", "{a}; there are conversation, last_reply, task.FIELD, and {b}; "),
        ("", "a text that asks for a verdict"),
        (" \n", "a text that asks for a verdict"),
        (None, "a text that asks for a verdict"),
    ],
)
def test_every_placeholder_that_is_not_known_is_refused_with_what_there_is(text: str, fault: str | None) -> None:
    if fault is None:
        assert filled(text) == text
        return
    with pytest.raises(ValueError, match="prompt") as refused:
        Template.of(text, KNOWN)
    assert fault in str(refused.value)


@given(st.lists(st.tuples(st.text(), NAMES)), st.text())
def test_what_is_put_in_is_never_read_as_a_template(pieces: list[tuple[str, str]], last: str) -> None:
    texts = [text.replace("{", "(") for text in (*(text for text, _ in pieces), last)]
    names = [name for _, name in pieces]
    text = "".join(f"{text}{{{name}}}" for text, name in zip(texts, names, strict=False)) + texts[-1]
    expected = "".join(f"{text}<{name}={{conversation}}>" for text, name in zip(texts, names, strict=False)) + texts[-1]
    if text.strip():
        template = Template.of(text, KNOWN)
        assert template.names == {*names}
        assert template.filled(lambda name: f"<{name}={{conversation}}>") == expected


@given(BRACES)
def test_braces_that_hold_no_name_survive(text: str) -> None:
    try:
        template = Template.of(f"x{text}", ("a", "aa", "aaa"))
    except ValueError:
        return
    if not template.names and "{{a" not in text:
        assert template.filled(str) == f"x{text}"
