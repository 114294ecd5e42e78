"""The message graph: what is shared, what is a branch, and where a conversation is found again."""

import weakref
from collections.abc import Hashable, Sequence
from typing import Any

from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.graph import Placement
from rollout_fsm.messages import (
    JSON,
    AssistantMessage,
    Message,
    OtherPart,
    Response,
    SystemMessage,
    Tokens,
    ToolMessage,
    UserMessage,
)
from rollout_fsm.trace import TaskInfo, Trace

ASK = UserMessage("2 + 2?")


def new_trace() -> Trace:
    return Trace(id="t", task=TaskInfo(type="Sum"))


def turn(trace: Trace, prompt: Sequence[Message], reply: str | AssistantMessage) -> int:
    message = AssistantMessage(reply) if isinstance(reply, str) else reply
    node = trace.commit(trace.place(prompt).messages, Response(message=message), time=0.0)
    assert node is not None
    return node


def spoken(trace: Trace) -> list[list[str]]:
    return [[node.message.text for node in branch] for branch in trace.branches]


def test_an_empty_trace_knows_nothing_of_a_request() -> None:
    assert new_trace().place([ASK]) == Placement(parent=None, known=0, messages=(ASK,))


def test_a_resent_prefix_adds_nothing() -> None:
    trace = new_trace()
    turn(trace, [SystemMessage("s"), ASK], "4")
    turn(trace, [SystemMessage("s"), UserMessage("2 + 2?"), AssistantMessage("4"), UserMessage("sure?")], "yes")
    assert spoken(trace) == [["s", "2 + 2?", "4", "sure?", "yes"]]
    assert [node.parent for node in trace.nodes] == [None, 0, 1, 2, 3]
    assert [node.sampled for node in trace.nodes] == [False, False, True, False, True]


def test_another_continuation_is_another_branch() -> None:
    trace = new_trace()
    first = turn(trace, [ASK], "4")
    turn(trace, [ASK, AssistantMessage("4"), UserMessage("a")], "A")
    turn(trace, [ASK, AssistantMessage("4"), UserMessage("b")], "B")
    turn(trace, [UserMessage("else")], "E")
    assert spoken(trace) == [["2 + 2?", "4", "a", "A"], ["2 + 2?", "4", "b", "B"], ["else", "E"]]
    assert trace.place([ASK, AssistantMessage("4")]).parent == first


def test_a_known_message_is_shown_to_the_model_as_it_is_stored() -> None:
    trace = new_trace()
    thought = AssistantMessage("4", reasoning_content="two and two")
    turn(trace, [ASK], thought)
    placed = trace.place([UserMessage("2 + 2?"), AssistantMessage("4"), UserMessage("sure?")])
    assert placed.messages == (ASK, thought, UserMessage("sure?"))
    assert (placed.parent, placed.known) == (1, 2)


def test_a_request_of_the_stored_objects_is_handed_back_without_a_copy() -> None:
    trace = new_trace()
    reply = AssistantMessage("4")
    turn(trace, [ASK], reply)
    request = (ASK, reply, UserMessage("sure?"))
    assert trace.place(request).messages is request


def test_the_original_of_a_rewritten_message_continues_its_branch_and_the_rewrite_stands() -> None:
    trace = new_trace()
    original, rewritten = UserMessage("my key is 123"), UserMessage("my key is ***")
    trace.commit([rewritten], Response(message=AssistantMessage("ok")), originals={0: original}, time=0.0)
    for first in (original, UserMessage("my key is 123"), rewritten):
        placed = trace.place([first, AssistantMessage("ok"), ASK])
        assert placed.messages == (rewritten, AssistantMessage("ok"), ASK)
        assert placed.known >= 2
        turn(trace, [first, AssistantMessage("ok"), ASK], "4")
    assert spoken(trace) == [["my key is ***", "ok", "2 + 2?", "4"]] * 3
    assert len([node for node in trace.nodes if not node.sampled]) == 2


def test_two_rewrites_of_one_original_are_two_branches_and_the_original_goes_on_where_most_is_known() -> None:
    trace = new_trace()
    original = UserMessage("now")
    one, two = UserMessage("now (1)"), UserMessage("now (2)")
    trace.commit([one], Response(message=AssistantMessage("A")), originals={0: original}, time=0.0)
    trace.commit([two], Response(message=AssistantMessage("B")), originals={0: original}, time=0.0)
    assert trace.place([original, AssistantMessage("A")]).messages == (one, AssistantMessage("A"))
    assert trace.place([original, AssistantMessage("B")]).messages == (two, AssistantMessage("B"))


def test_what_the_model_was_shown_is_never_stored_as_the_rewrite_of_something_else() -> None:
    trace = new_trace()
    original, rewritten = UserMessage("raw"), UserMessage("clean")
    placed_before = trace.place([original])
    trace.commit([rewritten], Response(message=AssistantMessage("A")), originals={0: original}, time=0.0)
    trace.commit(placed_before.messages, Response(message=AssistantMessage("B")), time=0.0)
    assert spoken(trace) == [["clean", "A"], ["raw", "B"]]


def test_calls_that_ran_side_by_side_share_the_prompt_that_both_found_new() -> None:
    trace = new_trace()
    one, other = trace.place([ASK]), trace.place([UserMessage("2 + 2?")])
    assert one.known == other.known == 0
    trace.commit(one.messages, Response(message=AssistantMessage("4")), time=0.0)
    trace.commit(other.messages, Response(message=AssistantMessage("four")), time=0.0)
    assert spoken(trace) == [["2 + 2?", "4"], ["2 + 2?", "four"]]
    assert len(trace.nodes) == 3


def test_two_replies_that_are_alike_are_two_turns() -> None:
    trace = new_trace()
    assert turn(trace, [ASK], "4") != turn(trace, [ASK], "4")
    assert trace.num_turns == 2


def test_each_of_two_replies_that_are_alike_is_gone_on_from_once() -> None:
    trace = new_trace()
    turn(trace, [ASK], "4")
    turn(trace, [ASK], "4")
    prompt = (ASK, AssistantMessage("4"))
    turn(trace, [*prompt, UserMessage("x")], "X")
    turn(trace, [*prompt, UserMessage("y")], "Y")
    assert spoken(trace) == [["2 + 2?", "4", "x", "X"], ["2 + 2?", "4", "y", "Y"]]


def test_replies_that_are_alike_do_not_lose_what_was_said_after_them() -> None:
    trace = new_trace()
    turn(trace, [ASK], "4")
    after = turn(trace, [ASK, AssistantMessage("4"), UserMessage("x")], "X")
    turn(trace, [ASK], "4")
    assert trace.place([ASK, AssistantMessage("4"), UserMessage("x"), AssistantMessage("X")]).parent == after


def test_of_replies_that_are_alike_the_very_object_that_comes_back_is_the_one() -> None:
    trace = new_trace()
    one, other = AssistantMessage("4"), AssistantMessage("4")
    first, second = turn(trace, [ASK], one), turn(trace, [ASK], other)
    assert trace.place([ASK, one, UserMessage("x")]).parent == first
    assert trace.place([ASK, other, UserMessage("x")]).parent == second


def test_a_prompt_without_a_reply_is_stored_once() -> None:
    trace = new_trace()
    assert trace.commit([ASK, UserMessage("and")], None, time=0.0) is None
    assert trace.commit([ASK, UserMessage("and")], None, time=0.0) is None
    assert spoken(trace) == [["2 + 2?", "and"]]
    assert trace.num_turns == 0


def test_an_empty_request_takes_its_reply_as_a_first_message() -> None:
    trace = new_trace()
    turn(trace, [], "hello")
    assert trace.nodes[0].parent is None
    assert trace.place([AssistantMessage("hello"), ASK]).parent == 0


def test_a_shorter_request_than_the_last_is_found_and_its_continuation_too() -> None:
    trace = new_trace()
    a, b = AssistantMessage("a"), AssistantMessage("b")
    turn(trace, (ASK,), a)
    long = (ASK, a, UserMessage("x"))
    turn(trace, long, b)
    assert trace.place((ASK,)).parent == 0
    assert trace.place((*long, b)).parent == 3


def counted(asked: list[str]) -> type[UserMessage]:
    """Messages that note when their key is asked for."""

    @frozen
    class Counted(UserMessage):
        @property
        def key(self) -> Hashable:
            asked.append(self.text)
            return "user", self.text

    return Counted


def test_going_on_with_the_same_objects_asks_for_the_keys_of_the_new_messages_alone() -> None:
    trace, asked = new_trace(), list[str]()
    ask = counted(asked)
    conversation: tuple[Message, ...] = (ask("0"),)
    per_turn = []
    for number in range(200):
        asked.clear()
        reply = AssistantMessage(f"r{number}")
        turn(trace, conversation, reply)
        per_turn.append(len(asked))
        conversation = (*conversation, reply, ask(f"{number + 1}"))
    assert len(set(per_turn[1:])) == 1
    assert per_turn[-1] <= 3


_words = st.sampled_from("abc")
_conversations = st.lists(
    st.one_of(
        _words.map(UserMessage),
        _words.map(AssistantMessage),
        _words.map(lambda word: ToolMessage(word, tool_call_id="1")),
    ),
    max_size=5,
)


def longest_known(trace: Trace, prompt: Sequence[Message]) -> int:
    """By looking at every path: how many leading messages of the prompt some path begins with."""
    best = 0
    for branch in trace.branches:
        keys = [node.message.key for node in branch]
        while best < min(len(prompt), len(keys)) and keys[: best + 1] == [m.key for m in prompt[: best + 1]]:
            best += 1
    return best


@given(st.lists(st.tuples(_conversations, _words | st.none(), st.booleans()), max_size=12), _conversations)
def test_a_conversation_is_found_exactly_as_far_as_some_branch_has_it(
    turns: list[tuple[list[Message], str | None, bool]], asked: list[Message]
) -> None:
    trace = new_trace()
    replies = 0
    for prompt, reply, look_first in turns:
        shown: Sequence[Message] = prompt
        if look_first:
            placed = trace.place(prompt)
            assert placed.known == longest_known(trace, prompt)
            shown = placed.messages
        size = len(trace.nodes)
        new = len(prompt) - longest_known(trace, prompt)
        response = None if reply is None else Response(message=AssistantMessage(reply))
        node = trace.commit(shown, response, time=0.0)
        replies += reply is not None
        assert len(trace.nodes) == size + new + (reply is not None)
        assert (node is None) == (reply is None)
    placed = trace.place(asked)
    assert placed.known == longest_known(trace, asked)
    assert [message.key for message in placed.messages] == [message.key for message in asked]
    path: list[Hashable] = []
    at = placed.parent
    while at is not None:
        path.append(trace.nodes[at].message.key)
        at = trace.nodes[at].parent
    assert path[::-1] == [message.key for message in asked[: placed.known]]
    assert trace.num_turns == replies == sum(node.sampled for node in trace.nodes)
    assert sum(len(branch) for branch in trace.branches) >= len(trace.nodes)


# ---- tokens


def told(trace: Trace, prompt: Sequence[Message], reply: str, read: Sequence[int], wrote: Sequence[int]) -> int:
    """A turn whose endpoint gives token ids."""
    tokens = Tokens(prompt_ids=tuple(read), completion_ids=tuple(wrote), logprobs=tuple(-0.5 for _ in wrote))
    response = Response(message=AssistantMessage(reply), tokens=tokens)
    node = trace.commit(trace.place(prompt).messages, response, time=0.0)
    assert node is not None
    return node


def sequence(trace: Trace, node: int) -> tuple[int, ...]:
    """The tokens along the path to a node."""
    at, pieces = node, list[tuple[int, ...]]()
    while at != -1:
        pieces.insert(0, trace.nodes[at].token_ids or ())
        parent = trace.nodes[at].parent
        at = -1 if parent is None else parent
    return tuple(token for piece in pieces for token in piece)


def test_the_tokens_along_a_path_are_what_the_model_read_and_wrote() -> None:
    trace = new_trace()
    told(trace, [SystemMessage("s"), ASK], "4", [1, 2, 3], [4, 5])
    conversation = [SystemMessage("s"), ASK, AssistantMessage("4"), UserMessage("sure?")]
    last = told(trace, conversation, "yes", [1, 2, 3, 4, 5, 6, 7], [8])
    assert sequence(trace, last) == (1, 2, 3, 4, 5, 6, 7, 8)
    assert [(node.token_ids, node.mask, node.logprobs) for node in trace.nodes if node.sampled] == [
        ((1, 2, 3, 4, 5), (False, False, False, True, True), (-0.5, -0.5)),
        ((6, 7, 8), (False, False, True), (-0.5,)),
    ]
    assert spoken(trace) == [["s", "2 + 2?", "4", "sure?", "yes"]]


def test_a_conversation_that_the_model_read_as_other_tokens_goes_on_in_a_branch_of_its_own() -> None:
    trace = new_trace()
    told(trace, [ASK], "4", [1, 2], [3, 4])
    conversation = [ASK, AssistantMessage("4"), UserMessage("sure?")]
    second = told(trace, conversation, "yes", [1, 2, 9, 6], [7])
    assert sequence(trace, second) == (1, 2, 9, 6, 7)
    assert spoken(trace) == [["2 + 2?", "4"], ["2 + 2?", "4", "sure?", "yes"]]
    assert [node.sampled for node in trace.nodes] == [False, True, False, False, True]
    third = told(trace, [*conversation, AssistantMessage("yes"), UserMessage("ok")], "bye", [1, 2, 9, 6, 7, 8], [5])
    assert sequence(trace, third) == (1, 2, 9, 6, 7, 8, 5)
    assert trace.nodes[third].parent == third - 1
    assert len(trace.branches) == 2
    assert trace.num_turns == 3


def test_a_reply_without_tokens_is_read_by_the_next_one_that_has_them() -> None:
    trace = new_trace()
    turn(trace, [ASK], "4")
    last = told(trace, [ASK, AssistantMessage("4"), UserMessage("sure?")], "yes", [1, 2, 3], [4])
    assert sequence(trace, last) == (1, 2, 3, 4)
    assert len(trace.branches) == 1


def test_a_rewrite_stands_in_a_branch_that_was_read_as_other_tokens() -> None:
    trace = new_trace()
    shown = UserMessage("[removed]")
    tokens = Tokens(prompt_ids=(1,), completion_ids=(2,))
    response = Response(message=AssistantMessage("4"), tokens=tokens)
    trace.commit([shown], response, originals={0: ASK}, time=0.0)
    follow = [ASK, AssistantMessage("4"), UserMessage("sure?")]
    told(trace, follow, "yes", [7, 8], [9])
    assert trace.place([*follow, AssistantMessage("yes")]).messages[0] == shown
    assert trace.place([*follow, AssistantMessage("yes")]).known == 4


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 2), max_size=3), st.lists(st.integers(0, 2), max_size=2)), max_size=6)
)
def test_every_reply_has_its_own_sequence_whatever_the_endpoint_reads(turns: list[tuple[list[int], list[int]]]) -> None:
    trace, conversation = new_trace(), list[Message]()
    expected: dict[int, tuple[int, ...]] = {}
    before: tuple[int, ...] = ()
    for number, (read, wrote) in enumerate(turns):
        conversation.append(UserMessage(f"ask {number}"))
        prompt = (*before, *read) if number % 3 else tuple(read)
        node = told(trace, conversation, f"reply {number}", prompt, wrote)
        before = (*prompt, *wrote)
        expected[node] = before
        conversation.append(trace.nodes[node].message)
        for known, tokens in expected.items():
            assert sequence(trace, known) == tokens
    assert trace.num_turns == len(turns)


# ---- a conversation that was stored lately is recognised as a whole


def shows(number: JSON) -> UserMessage:
    return UserMessage((OtherPart({"type": "seen", "number": number}),))


def test_messages_whose_parts_differ_only_for_json_are_different_conversations() -> None:
    trace = new_trace()
    numbers: Sequence[JSON] = (1, 1.0, True, 0.0, -0.0, False)
    nodes = [turn(trace, [shows(number)], "seen") for number in numbers]
    assert len(trace.nodes) == 2 * len(numbers)
    for number, node in zip(numbers, nodes, strict=True):
        told = trace.place([shows(number), AssistantMessage("seen"), ASK])
        assert (told.parent, told.known) == (node, 2)
        assert repr(told.messages[0]) == repr(shows(number))


def forgetful(trace: Trace) -> Trace:
    """Looks every message up, always."""
    trace._graph.settle()
    return trace


_rewrites = st.none() | st.sampled_from("abAB")
_turns = st.fixed_dictionaries(
    {
        "goes on from": st.integers(0, 20),
        "leaves out": st.sampled_from([0, 0, 0, 1, 3]),
        "says": st.lists(
            st.tuples(st.sampled_from([UserMessage, UserMessage, AssistantMessage]), _words)
            | st.tuples(st.just(shows), st.sampled_from([1, 1.0, True])),
            max_size=2,
        ),
        "anew": st.booleans(),
        "rewrites": st.lists(_rewrites, max_size=2),
        "reply": st.none() | st.sampled_from("xxy"),
        "read": st.none() | st.lists(st.sampled_from([1, 1, 2]), max_size=6),
        "wrote": st.lists(st.sampled_from([1, 2]), max_size=2),
        "waits": st.booleans(),
        "placed": st.booleans(),
    }
)


@given(st.lists(_turns, max_size=14))
def test_what_is_recognised_as_a_whole_stands_where_looking_up_every_message_finds_it(
    turns: list[dict[str, Any]],
) -> None:
    traces = new_trace(), new_trace()
    conversations = [list[Message]()]
    waiting: list[tuple[dict[str, Any], list[Message], list[Placement]]] = []

    def commit(told: dict[str, Any], sent: list[Message], placements: list[Placement]) -> None:
        nodes = []
        reply = None if told["reply"] is None else AssistantMessage(told["reply"])
        tokens = None
        if told["read"] is not None:
            tokens = Tokens(prompt_ids=tuple(told["read"]), completion_ids=tuple(told["wrote"]))
        for trace, placed in zip(traces, placements, strict=True):
            shown, originals = list(placed.messages), dict[int, Message]()
            for at, text in enumerate(told["rewrites"], placed.known):
                if text is not None and at < len(shown) and isinstance(shown[at], UserMessage):
                    originals[at], shown[at] = shown[at], UserMessage(text)
            placement = placed if told["placed"] or originals else None
            response = None if reply is None else Response(message=reply, tokens=tokens)
            messages = tuple(shown) if originals else placed.messages
            nodes.append(trace.commit(messages, response, originals=originals, placement=placement, time=0.0))
        assert nodes[0] == nodes[1]
        conversations.append([*sent, *([] if reply is None else [reply])])

    for told in turns:
        base = conversations[told["goes on from"] % len(conversations)]
        sent = [*base[: len(base) - told["leaves out"]], *(kind(text) for kind, text in told["says"])]
        if told["anew"]:
            sent = [evolve(message) for message in sent]
        one, other = traces[0].place(sent), forgetful(traces[1]).place(sent)
        assert one == other
        waiting.append((told, sent, [one, other]))
        while waiting and not told["waits"]:
            forgetful(traces[1])
            commit(*waiting.pop(0))
    assert traces[0].nodes == traces[1].nodes


def test_of_a_conversation_that_is_sent_anew_each_time_the_keys_of_the_new_messages_alone_are_asked_for() -> None:
    trace, asked = new_trace(), list[str]()
    ask = counted(asked)
    said: list[Message] = []
    for number in range(50):
        asked.clear()
        said.append(ask(f"{number}"))
        turn(trace, [evolve(message) for message in said], "yes")
        said.append(AssistantMessage("yes"))
        assert set(asked) == {f"{number}"}


def test_asking_where_a_request_stands_changes_nothing_of_what_is_recognised() -> None:
    trace, asked = new_trace(), list[str]()
    ask = counted(asked)
    begun, one, other, after = ask("ask"), AssistantMessage("4"), AssistantMessage("4"), UserMessage("x")
    turn(trace, [begun], one)
    turn(trace, [begun], other)
    turn(trace, [begun, other, after], "X")
    waits = trace.place([begun, one, UserMessage("y")])
    turn(trace, [begun], "4")
    trace.place([begun, other, after])  # past replies that are alike
    trace.commit(waits.messages, None, placement=waits, time=0.0)
    asked.clear()
    assert trace.place([evolve(begun), ask("new")]).known == 1
    assert set(asked) == {"new"}


def test_a_placement_that_nobody_found_is_no_help_and_does_no_harm() -> None:
    trace = new_trace()
    made = Placement(parent=None, known=0, messages=(ASK,))
    trace.commit(made.messages, Response(message=AssistantMessage("4")), placement=made, time=0.0)
    assert trace.place([ASK, AssistantMessage("4")]).parent == 1
    assert turn(trace, [ASK, AssistantMessage("4"), UserMessage("sure?")], "yes") == 3


def test_a_sealed_trace_finds_what_it_found_and_holds_no_request_any_more() -> None:
    trace = new_trace()
    original, rewritten = UserMessage("my key is 123"), UserMessage("my key is ***")
    thought, said = AssistantMessage("4", reasoning_content="two and two"), AssistantMessage("4")
    trace.commit([rewritten], Response(message=thought), originals={0: original}, time=0.0)
    placed = trace.place([original, said, ASK])
    trace.commit(placed.messages, Response(message=AssistantMessage("4")), placement=placed, time=0.0)
    sent, asked = weakref.ref(said), [original, AssistantMessage("4"), ASK, AssistantMessage("4"), UserMessage("?")]
    del said, placed
    assert sent() is not None
    stands = Placement(parent=3, known=4, messages=(rewritten, thought, *asked[2:]))
    assert trace.place(asked) == stands
    trace.seal()
    assert sent() is None
    assert trace.place(asked) == stands


def test_sealing_a_trace_that_was_only_read_makes_no_graph_of_it() -> None:
    talked = new_trace()
    turn(talked, [ASK], "4")
    trace = Trace(id="t", task=talked.task, nodes=[*talked.nodes])
    trace.seal()
    assert trace._made_graph is None
    assert trace.num_turns == 1
    assert trace._graph._by_key is None


def test_conversations_that_go_on_in_turn_are_each_recognised_after_replies_that_were_alike() -> None:
    trace, asked = new_trace(), list[str]()
    ask = counted(asked)
    said: list[list[Message]] = [[ask("ask")], [ask("ask")]]
    for number in range(50):
        for which, conversation in enumerate(said):
            asked.clear()
            reply = AssistantMessage("yes")
            turn(trace, conversation, reply)
            assert number < 3 or set(asked) == {f"{which} {number}"}
            conversation += [reply, ask(f"{which} {number + 1}")]
    assert sorted(map(len, trace.branches)) == [100, 100]


def test_of_conversations_that_are_alike_to_the_end_the_one_that_came_later_is_found_as_well() -> None:
    trace = new_trace()
    one, other = AssistantMessage("4"), AssistantMessage("4")
    turn(trace, [ASK], one)
    turn(trace, [ASK], other)
    said, again = AssistantMessage("sure"), AssistantMessage("sure")
    turn(trace, [ASK, one], said)
    turn(trace, [ASK, one, said, AssistantMessage("yes")], "first")
    turn(trace, [ASK, other], again)
    last = AssistantMessage("yes")
    node = turn(trace, [ASK, other, again], last)
    assert trace.place([ASK, other, again, last]).parent == node


def test_what_was_stored_elsewhere_while_a_request_was_rewritten_is_found_there() -> None:
    trace = new_trace()
    one, other, raw = AssistantMessage("4"), AssistantMessage("4"), UserMessage("my key is 123")
    turn(trace, [ASK], one)
    turn(trace, [ASK], other)
    placed = trace.place([ASK, one, raw])
    after = turn(trace, [ASK, other, raw], "ok")
    shown = (ASK, one, UserMessage("my key is ***"))
    answer = Response(message=AssistantMessage("fine"))
    trace.commit(shown, answer, originals={2: raw}, placement=placed, time=0.0)
    assert trace.place([ASK, other, raw, AssistantMessage("ok")]).parent == after
