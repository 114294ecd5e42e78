"""Which API the model's endpoint speaks, as a run is told it."""

from typing import Literal

import pytest

from rollout_fsm import AnthropicModel, OpenAIModel
from rollout_fsm.cli.parts import endpoint_variable, make_model
from rollout_fsm.cli.settings import ModelSettings
from tests.cli.conftest import CommandLine

AT = "http://127.0.0.1:9/v1"


@pytest.mark.parametrize("speaks", [None, ("chat",), ("responses", "chat")])
def test_what_speaks_openais_apis_is_asked_in_them(speaks: tuple[Literal["chat", "responses"], ...] | None) -> None:
    model = make_model(ModelSettings(name="m", base_url=AT, speaks=speaks))
    assert isinstance(model, OpenAIModel)
    assert (model.base_url, model.api_key_var, model.speaks) == (AT, "OPENAI_API_KEY", speaks)


def test_what_speaks_anthropics_is_asked_in_that_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ModelSettings(name="m", base_url=AT, speaks=("messages",), stream=True)
    model = make_model(settings)
    assert isinstance(model, AnthropicModel)
    assert (model.base_url, model.api_key_var, model.stream) == (AT, "ANTHROPIC_API_KEY", True)
    assert endpoint_variable(settings) == "ANTHROPIC_BASE_URL"
    assert endpoint_variable(None) == "OPENAI_BASE_URL"


def test_an_endpoint_of_two_providers_is_refused(cli: CommandLine) -> None:
    refused = cli("run", "--dry-run", "-m", "m", "-b", AT, "--speaks", "messages", "--speaks", "chat")
    assert refused.code == 2
    assert "--speaks: messages is another provider's than chat and responses" in refused.err


def test_where_the_surroundings_say_the_endpoint_it_is_written_down(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:7/v1")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", AT)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    done = cli("run", "-m", "m", "--speaks", "messages", "-n", "1", "--max-turns", "0", "-o", "out")
    assert done.code == 0, done.err
    written = (cli.folder / "out" / "config.toml").read_text()
    assert f'base_url = "{AT}"' in written
    assert 'speaks = ["messages"]' in written
