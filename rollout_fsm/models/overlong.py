"""How providers say that a prompt does not fit the model's context window (L21). Sans-IO.

There is no common code for it, so it is told by the words: one row a wording, the provider that uses it beside it. Two
mistakes are worse than a missed wording, since both would end a rollout as complete: to take a rate limit on tokens for
a full context, and to take a `max_tokens` that never fits for a conversation that grew too long. The first is vetoed by
its words, the second by the numbers, where the provider gives them.
"""

import re

from attrs import field, frozen

__all__ = ["CODES", "WORDINGS", "Wording", "is_overlong", "plain_text"]

READ = 20_000
"""How many characters of a complaint are read: a provider may quote the prompt after its own words."""

OTHER_STATUSES = frozenset({401, 402, 403, 404, 408, 429})
"""HTTP statuses that say that it was something else, whatever the words."""

CODES = frozenset(
    {
        "context_length_exceeded",  # OpenAI, Azure, OpenRouter, Groq
        "context_window_exceeded",
        "contextwindowexceedederror",  # LiteLLM
        "exceed_context_size_error",  # llama.cpp
        "model_context_window_exceeded",  # Z.ai
        "model_max_prompt_tokens_exceeded",  # GitHub Copilot
    }
)
"""Error codes and types that say it by themselves, in lower case."""


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@frozen(kw_only=True)
class Wording:
    """One way to say it: whose it is, and what is found in the text once it is lower case and its numbers plain."""

    whose: str
    pattern: re.Pattern[str] = field(converter=_compiled)


WORDINGS: tuple[Wording, ...] = (
    Wording(whose="OpenAI, vLLM, SGLang, DeepSeek, OpenRouter", pattern=r"maximum context (?:length|limit)"),
    Wording(whose="OpenAI (responses)", pattern=r"exceeds the context window"),
    Wording(whose="OpenAI (gpt-5), Azure", pattern=r"input tokens exceed the configured limit of \d+"),
    Wording(whose="OpenAI (by characters)", pattern=r"'(?:messages|input)\[\d+\]\.content[^']*': string too long"),
    Wording(whose="vLLM", pattern=r"prompt (?:\([^()]*\) )?is longer than the maximum model length"),
    Wording(whose="Anthropic, vLLM, Fireworks", pattern=r"prompt (?:\([^()]*\) )?is too long"),
    Wording(whose="Anthropic (with its output)", pattern=r"input length and `?max_tokens`? exceed context limit"),
    Wording(whose="Bedrock", pattern=r"\binput is too long"),
    Wording(whose="Bedrock (by tokens)", pattern=r"too many input tokens\. max input tokens: \d+"),
    Wording(whose="SGLang, Together", pattern=r"is longer than the (?:model's )?context length"),
    Wording(whose="SGLang, Poolside", pattern=r"input length [^.]{0,30}exceeds the maximum allowed (?:input )?length"),
    Wording(whose="llama.cpp", pattern=r"exceeds? the available context size|context size has been exceeded"),
    Wording(whose="llama-cpp-python", pattern=r"requested tokens (?:\(\d+\) )?exceed context window of \d+"),
    Wording(whose="Ollama", pattern=r"prompt too long; exceeded (?:max )?context length"),
    Wording(
        whose="LM Studio", pattern=r"greater than the context length|loaded with context length of only \d+ tokens"
    ),
    Wording(whose="TGI (prompt)", pattern=r"`inputs` must have less than \d+ tokens"),
    Wording(whose="TGI, Together (with its output)", pattern=r"`inputs` tokens \+ `max_new_tokens` must be <= \d+"),
    Wording(whose="TensorRT-LLM", pattern=r"prompt length \(\d+\) exceeds maximum input length"),
    Wording(whose="Gemini", pattern=r"input token count [^.]{0,30}exceeds the maximum number of tokens"),
    Wording(whose="Mistral", pattern=r"too large for model with \d+ maximum context length"),
    Wording(whose="xAI", pattern=r"maximum prompt length is \d+ but the request contains"),
    Wording(whose="Groq", pattern=r"reduce the length of the messages"),
    Wording(whose="Moonshot", pattern=r"exceeded model token limit: \d+"),
    Wording(whose="MiniMax", pattern=r"context window exceeds limit"),
    Wording(whose="Qwen", pattern=r"range of input length should be \[1, ?\d+\]"),
    Wording(whose="Zhipu", pattern=r"prompt exceeds max length"),
    Wording(whose="Cohere", pattern=r"number of tokens in the prompt cannot exceed \d+"),
    Wording(whose="GitHub Copilot", pattern=r"prompt token count of \d+ exceeds the limit of \d+"),
    Wording(whose="LiteLLM and other proxies", pattern=r"context[ _]?(?:length|window|limit)[ _]?exceeded"),
)
"""The wordings. Each is one that was met in the wild; a test holds an example of every row."""

_RATE = re.compile(
    r"tokens per (?:min|minute|day|hour|second)\b|per[- ]minute|\btp[md]\b"
    r"|rate[ _-]?limit|quota|throttl|too many requests"
)

_OUTPUT_ALONE = (
    re.compile(r"is too large: (?P<output>\d+)\. this model's maximum context length is (?P<window>\d+)"),
    re.compile(
        r"maximum context length is (?P<window>\d+) .{0,120}?\b(?P<output>\d+) (?:in|for) the (?:completion|output)"
    ),
    re.compile(r"maximum context length is (?P<window>\d+) .{0,80}?requested (?P<output>\d+) output tokens"),
    re.compile(r"maximum context length of (?P<window>\d+) .{0,160}?\b(?P<output>\d+) tokens for the completion"),
    re.compile(r"exceed context limit: \d+ \+ (?P<output>\d+) > (?P<window>\d+)"),
    re.compile(r"must be <= (?P<window>\d+)\. given: \d+ `inputs` tokens and (?P<output>\d+) `max_new_tokens`"),
)
"""Where a provider says how much of the sum was asked for as output, and how large the window is."""


def is_overlong(text: str, *, codes: tuple[str, ...] = (), status: int | None = None) -> bool:
    """Whether a provider's complaint says that the prompt is beyond the context window (L21).

    `text` is all that it said, `codes` its error codes and types, `status` its HTTP status, None inside a stream. A
    prompt that no longer leaves room for the output that was asked for counts; an output that could never fit, whatever
    the prompt, doesn't.
    """
    plain = plain_text(text[:READ])
    if status in OTHER_STATUSES or _RATE.search(plain) or any(_RATE.search(code.lower()) for code in codes):
        return False
    if any(_never_fits(match) for pattern in _OUTPUT_ALONE if (match := pattern.search(plain))):
        return False
    return any(code.lower() in CODES for code in codes) or any(row.pattern.search(plain) for row in WORDINGS)


def plain_text(text: str) -> str:
    """The text as the wordings are looked for in it: lower case, one space between words, plain quotes and numbers."""
    text = " ".join(text.lower().replace("\u2019", "'").split())
    return re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)


def _never_fits(match: re.Match[str]) -> bool:
    return int(match["output"]) >= int(match["window"])
