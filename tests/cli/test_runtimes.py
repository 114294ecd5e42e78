"""The runtime of a run: what its names stand for, and that nothing is said of one that it would not do."""

import pytest

from rollout_fsm import BoxLimits, BubblewrapRuntime, DockerRuntime, LocalRuntime, NetworkPolicy
from rollout_fsm.cli.faults import UsageError
from rollout_fsm.cli.runtimes import make_runtime
from rollout_fsm.cli.settings import BoxSettings, NetworkSettings
from rollout_fsm.runtime import Runtime
from tests.cli.conftest import CommandLine

NOTHING = NetworkPolicy(allow=())
SOME = NetworkSettings(allow=("example.org:443",), block=("*.evil.example",))
POLICY = NetworkPolicy(allow=["example.org:443"], block=["*.evil.example"])


def made(named: str, network: NetworkSettings | None = None, box: BoxSettings | None = None) -> Runtime:
    factory = make_runtime(named, network, box)
    assert not isinstance(factory, Runtime)
    return factory("box")


def test_a_box_reaches_nothing_unless_it_is_said() -> None:
    box = made("bubblewrap")
    assert isinstance(box, BubblewrapRuntime)
    assert (box.network, box.limits, box.read_only) == (NOTHING, BoxLimits(), ())
    container = made("docker")
    assert isinstance(container, DockerRuntime)
    assert (container.network, container.engine) == (NOTHING, "docker")
    assert isinstance(made("local"), LocalRuntime)


def test_what_is_said_of_a_box_is_what_it_has() -> None:
    said = BoxSettings(memory=10, processes=11, cpu_time=12, file_size=13, workspace=14, read_only=("/opt",))
    box = made("bubblewrap", SOME, said)
    assert isinstance(box, BubblewrapRuntime)
    assert box.network == POLICY
    assert box.limits == BoxLimits(memory=10, processes=11, cpu_time=12, file_size=13, workspace=14)
    assert box.read_only == ("/opt",)
    container = made("podman", SOME, BoxSettings(image="debian:12", memory=10, processes=11))
    assert isinstance(container, DockerRuntime)
    assert (container.engine, container.image, container.network) == ("podman", "debian:12", POLICY)
    assert (container.memory, container.processes) == ("10", 11)


@pytest.mark.parametrize(
    ("named", "network", "box", "said"),
    [
        (
            "local",
            SOME,
            None,
            "--network.allow: the runtime local holds programs to no network policy; use",
        ),
        (
            "local",
            None,
            BoxSettings(memory=1),
            "--box.memory: the runtime local has no setting memory; use --",
        ),
        ("docker", None, BoxSettings(file_size=1), "--box.file-size: the runtime docker has no setting file_size"),
        ("bubblewrap", None, BoxSettings(image="x"), "--image: the runtime bubblewrap has no setting image"),
        ("json:JSONEncoder", SOME, None, "--network.allow: the runtime json:JSONEncoder holds programs to no network"),
        ("bubblewarp", None, None, "--runtime: there is no runtime 'bubblewarp'; did you mean 'bubblewrap'?"),
    ],
)
def test_what_a_runtime_would_not_hold_programs_to_is_refused(
    named: str, network: NetworkSettings | None, box: BoxSettings | None, said: str
) -> None:
    with pytest.raises(UsageError) as refused:
        make_runtime(named, network, box)
    assert said in str(refused.value)


def test_a_policy_of_a_file_is_checked_with_everything_else(cli: CommandLine) -> None:
    cli.file("run.toml", 'runtime = "bubblewrap"\n[network]\nallow = ["ex*mple"]\n[box]\nmemory = 0\n')
    refused = cli("run", "--config", "run.toml", "--dry-run")
    assert refused.code == 2
    assert "network.allow: allow[0] of the network policy, 'ex*mple': a pattern is" in refused.err
    assert "box.memory: must be a whole number of at least 1, not 0" in refused.err


def test_what_is_said_of_a_box_is_shown_before_it_is_made(cli: CommandLine) -> None:
    flags = ["--runtime", "bubblewrap", "--network.allow", "example.org", "--box.memory", "1000000000"]
    done = cli("run", "--dry-run", *flags)
    assert done.code == 0, done.err
    assert '[network]\nallow = ["example.org"]\n\n[box]\nmemory = 1000000000' in done.out
