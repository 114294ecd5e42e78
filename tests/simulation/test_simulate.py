"""`simulate`, as embedders use it: their own task on the real engine, with everything else scripted."""

import gc
import json
import math
import signal
from pathlib import Path

import pytest
import trio
from attrs import frozen

from rollout_fsm import Request, Response, Task, Trace, intercept, metric, reward, stop
from rollout_fsm.runtime import Runtime
from rollout_fsm.simulation import Scenario, SimulatedOutcome, load_scenario, simulate, simulate_files


@frozen(kw_only=True)
class Sum(Task):
    """A task as an embedder writes it."""

    answer: str

    async def setup(self, trace: Trace, runtime: Runtime) -> None:
        await runtime.write("answer", self.answer)
        trace.state["calls"] = 0

    @stop
    def said_done(self, trace: Trace) -> bool:
        return "DONE" in trace.last_reply

    @intercept
    def hide(self, request: Request) -> None:
        return None

    @stop(priority=1)
    def rude(self, response: Response) -> bool:
        return "idiot" in response.message.text

    @reward(weight=2.0)
    async def correct(self, trace: Trace, runtime: Runtime) -> float:
        return float((await runtime.read("answer")).decode() in trace.last_reply)

    @metric
    def turns(self, trace: Trace) -> float:
        return trace.num_turns


def test_an_embedders_stop_is_played() -> None:
    said = ["3?", "it is 4, DONE", "never asked for"]
    scenario = {"segments": [{"turns": [{"text": text, "delay": 10} for text in said]}]}
    outcome = simulate(scenario, task=Sum(prompt="2 + 2?", answer="4"))
    assert (outcome.state, outcome.stop_condition) == ("completed", "said_done")
    assert outcome.rewards == {"correct": 2.0}
    assert outcome.metrics == {"turns": 2}
    assert outcome.calls == [("0.0", 200), ("0.1", 200), ("0.2", 400)]
    assert outcome.clock == 20
    assert outcome.trace.state["calls"] == 0
    assert outcome.nodes[0] == "->user:2 + 2?"


def test_an_embedders_response_stop_is_played() -> None:
    outcome = simulate({"segments": [{"turns": [{"text": "idiot"}]}]}, task=Sum(prompt="2 + 2?", answer="4"))
    assert (outcome.stop_condition, outcome.num_turns, outcome.rewards) == ("rude", 1, {"correct": 0.0})


def test_an_embedders_budget_is_played() -> None:
    scenario = {"segments": [{"turns": [{"delay": 3}] * 5}], "timeouts": {"agent": 10}}
    failed = simulate(scenario, task=Sum(prompt="2 + 2?", answer="4"))
    assert (failed.state, failed.errors, failed.clock) == ("failed", ["HarnessError"], 10)
    stopped = simulate({**scenario, "policy": {"agent_expiry": "stop"}}, task=Sum(prompt="2 + 2?", answer="4"))
    assert (stopped.state, stopped.stop_condition) == ("completed", "agent_timeout")


def test_an_embedders_task_opens_the_conversation_or_the_user_does() -> None:
    scenario = {"mode": "interaction", "segments": [{"turns": [{}]}]}
    assert simulate(scenario, task=Sum(prompt="2 + 2?", answer="4")).nodes[0] == "->user:2 + 2?"
    assert simulate(scenario, task=Sum(answer="4")).nodes[0] == "->user:user 0"


@pytest.mark.parametrize(
    ("phase", "state"), [("boot", "booting"), ("setup", "setup"), ("finalize", "finalizing"), ("scoring", "scoring")]
)
def test_the_phases_of_an_embedders_task_are_known(phase: str, state: str) -> None:
    class Slow(Task):
        async def setup(self, trace: Trace, runtime: Runtime) -> None:
            await trio.sleep(10)

        async def finalize(self, trace: Trace, runtime: Runtime) -> None:
            await trio.sleep(10)

        @reward
        async def slow(self) -> float:
            await trio.sleep(10)
            return 1.0

    scenario = {
        "runtime": {"start": {"delay": 10}},
        "segments": [{"turns": [{}]}],
        "cancel_at": {"phase": phase, "after": 2},
    }
    outcome = simulate(scenario, task=Slow(prompt="hello"))
    assert outcome.transitions[-2:] == [("cancel", state, "aborting"), ("released", "aborting", "aborted")]


def test_a_task_that_the_engine_refuses_is_a_type_error_and_no_group() -> None:
    class Wrong(Task):
        @stop
        def max_turns(self, trace: Trace) -> bool:
            return True

    with pytest.raises(TypeError, match="max_turns"):
        simulate({}, task=Wrong(prompt="hello"))


def test_inside_of_an_event_loop_there_is_no_other() -> None:
    async def main() -> None:
        simulate({})

    with pytest.raises(RuntimeError, match="run"):
        trio.run(main)


def test_a_simulated_box_runs_no_programs() -> None:
    class Curious(Task):
        async def setup(self, trace: Trace, runtime: Runtime) -> None:
            await runtime.run(["ls"])

    outcome = simulate({}, task=Curious(prompt="hello"))
    assert outcome.errors == ["SandboxError"]
    assert "'ls'" in outcome.trace.errors[0].message


def test_a_file_that_nobody_wrote_is_not_in_the_box() -> None:
    class Forgetful(Task):
        @reward
        async def reads(self, runtime: Runtime) -> float:
            return float(len(await runtime.read("answer")))

    outcome = simulate({"segments": [{"turns": [{}]}]}, task=Forgetful(prompt="hello"))
    assert outcome.errors == ["TaskError"]
    assert "answer" in outcome.trace.errors[0].message


def test_code_that_changes_the_trace_after_the_end_is_found_out() -> None:
    class Haunting(Task):
        async def finalize(self, trace: Trace, runtime: Runtime) -> None:
            trio.lowlevel.spawn_system_task(self.haunt, trace)

        async def haunt(self, trace: Trace) -> None:
            await trio.sleep(5)
            trace.info["boo"] = True

    outcome = simulate({"segments": [{"turns": [{}]}]}, task=Haunting(prompt="hello"))
    assert outcome.ok
    assert outcome.mutated_after_return


def test_a_scenario_is_taken_as_it_is_loaded_as_data_or_as_a_file(tmp_path: Path) -> None:
    data = {"segments": [{"turns": [{"delay": 2}]}]}
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(data))
    loaded = load_scenario(path)
    assert isinstance(loaded, Scenario)
    assert simulate(loaded) == simulate(data) == simulate(path) == simulate(str(path))


def test_an_outcome_is_json_and_keeps_the_trace_to_itself() -> None:
    outcome = simulate({"segments": [{"turns": [{}]}]})
    assert isinstance(outcome, SimulatedOutcome)
    made = json.loads(json.dumps(outcome.to_json()))
    assert made["calls"] == [["0.0", 200]]
    assert "trace" not in made
    assert outcome.trace.id


# ---- files


def play(paths: list[Path], *, many: bool) -> tuple[int, list[str], list[str]]:
    lines: list[str] = []
    complaints: list[str] = []
    return simulate_files(paths, many=many, write=lines.append, complain=complaints.append), lines, complaints


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    contents = ['{"mode": "run"}', '{"mode": "walk"}', '{"scenario": {"mode": "interaction"}}']
    paths = [tmp_path / f"{number}.json" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_text(content)
    return paths


def test_one_file_is_one_object(files: list[Path]) -> None:
    code, lines, complaints = play(files[:1], many=False)
    assert (code, len(lines), complaints) == (0, 1, [])
    assert json.loads(lines[0])["state"] == "completed"


def test_several_files_need_to_be_asked_for(files: list[Path]) -> None:
    code, lines, complaints = play(files, many=False)
    assert (code, lines, len(complaints)) == (2, [], 1)
    assert "--many" in complaints[0]


def test_of_many_files_each_has_its_line_also_one_that_is_wrong(files: list[Path]) -> None:
    code, lines, complaints = play([*files, files[0].with_name("none.json")], many=True)
    assert code == 2
    assert ["error" in json.loads(line) for line in lines] == [False, True, False, True]
    assert [complaint.split(": ")[0] for complaint in complaints] == [
        str(files[1]),
        str(files[0].with_name("none.json")),
    ]


def test_a_wrong_file_prints_no_outcome(files: list[Path]) -> None:
    code, lines, complaints = play([files[1]], many=False)
    assert (code, lines) == (2, [])
    assert "mode" in complaints[0]


def test_ctrl_c_ends_the_play_and_is_no_outcome_of_the_scenario() -> None:
    class Struck(Task):
        async def finalize(self, trace: Trace, runtime: object) -> None:
            signal.raise_signal(signal.SIGINT)
            await trio.sleep(1_000)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            simulate({"segments": [{"turns": [{}]}]}, task=Struck(prompt="hello"))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_rewards_that_add_up_to_more_than_a_float_holds_are_a_failure_and_no_reward() -> None:
    huge = {"value": 1.7e308}
    outcome = simulate({"segments": [{"turns": [{}]}], "rewards": [{"name": "a", **huge}, {"name": "b", **huge}]})
    assert (outcome.state, outcome.errors, outcome.reward) == ("failed", ["TaskError"], None)
    json.dumps(outcome.to_json(), allow_nan=False)


@pytest.mark.parametrize("written", [math.nan, 10**400, "much"])
def test_a_number_that_a_signal_writes_past_its_return_is_held_to_the_same_rules(written: object) -> None:
    class Writes(Task):
        @reward
        def good(self, trace: Trace) -> float:
            trace.metrics["m"] = written  # type: ignore[assignment]
            return 1.0

    outcome = simulate({"segments": [{"turns": [{}]}]}, task=Writes(prompt="hello"))
    assert (outcome.state, outcome.errors, outcome.metrics) == ("failed", ["TaskError"], {})


def test_a_play_leaves_no_class_behind() -> None:
    scenario = {"segments": [{"turns": [{}]}], "rewards": [{"name": "right"}], "harness_metrics": [{"name": "length"}]}
    gc.collect()
    before = len(Task.__subclasses__())
    assert simulate(scenario).ok
    gc.collect()
    assert len(Task.__subclasses__()) == before
