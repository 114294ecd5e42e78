"""Each wording of a full context is told from each complaint that only resembles it (L21)."""

import pytest

from rollout_fsm.models.overlong import CODES, WORDINGS, is_overlong, plain_text

EXAMPLES = {
    "OpenAI, vLLM, SGLang, DeepSeek, OpenRouter": [
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens. "
        "Please reduce the length of the messages.",
        "This model's maximum context length is 16384 tokens. However, you requested 122946 tokens (112946 in the "
        "messages, "
        "10000 in the completion). Please reduce the length of the messages or completion. None",
        "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context length is 32768 "
        "tokens and "
        "your request has 30000 input tokens (4096 > 32768 - 30000).",
        "This model's maximum context length is 32,768 tokens. However, you requested 4096 output tokens and your "
        "prompt "
        "contains at least 28673 input tokens, for a total of at least 32769 tokens.",
        "Requested token count exceeds the model's maximum context length of 202752 tokens. You requested a total of "
        "202941 "
        "tokens: 170941 tokens from the input messages and 32000 tokens for the completion.",
        "This endpoint\u2019s maximum context length is 131072 tokens. However, you requested about 200000 tokens "
        "(190000 of text "
        "input, 10000 in the output).",
        "Error: 400 Input length (265330) exceeds model's maximum context length (262144).",
        "The input exceeds the model's maximum context limit of 8192 tokens.",
    ],
    "OpenAI (responses)": [
        "Your input exceeds the context window of this model. Please adjust your input and try again."
    ],
    "OpenAI (gpt-5), Azure": [
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178 tokens."
    ],
    "OpenAI (by characters)": [
        "Invalid 'messages[1].content': string too long. Expected a string with maximum length 10485760, but got a "
        "string "
        "with length 12000000 instead."
    ],
    "vLLM": [
        "The decoder prompt (length 9001) is longer than the maximum model length of 8192. Make sure that "
        "`max_model_len` is "
        "no smaller than the number of text tokens."
    ],
    "Anthropic, vLLM, Fireworks": [
        "prompt is too long: 213462 tokens > 200000 maximum",
        "The prompt (total length 25938) is too long to fit into the model (context length 4096).",
        "The prompt is too long: 140000, model maximum context length: 131071",
    ],
    "Anthropic (with its output)": [
        "input length and `max_tokens` exceed context limit: 174167 + 64000 > 200000, decrease input length or "
        "`max_tokens` "
        "and try again"
    ],
    "Bedrock": ["Input is too long for requested model."],
    "Bedrock (by tokens)": ["Too many input tokens. Max input tokens: 8192, request input token count: 9120"],
    "SGLang, Together": ["The input (61709 tokens) is longer than the model's context length (40960 tokens)."],
    "SGLang, Poolside": [
        "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens). Use a shorter input.",
        "Input length 131393 exceeds the maximum allowed input length of 131040 tokens.",
    ],
    "llama.cpp": [
        "request (9031 tokens) exceeds the available context size (1024 tokens), try increasing it",
        "the request exceeds the available context size. try increasing the context size or enable context shift",
        "Context size has been exceeded.",
    ],
    "llama-cpp-python": ["Requested tokens (516) exceed context window of 512"],
    "Ollama": ["prompt too long; exceeded max context length by 100918 tokens"],
    "LM Studio": [
        "The number of tokens to keep from the initial prompt is greater than the context length.",
        "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context "
        "length "
        "of only 4096 tokens, which is not enough.",
    ],
    "TGI (prompt)": ["Input validation error: `inputs` must have less than 1024 tokens. Given: 1872"],
    "TGI, Together (with its output)": [
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 1512. Given: 1000 `inputs` tokens and "
        "1024 "
        "`max_new_tokens`"
    ],
    "TensorRT-LLM": ["Prompt length (9000) exceeds maximum input length (8192). Set log level to info."],
    "Gemini": ["The input token count (1200293) exceeds the maximum number of tokens allowed (1048576)."],
    "Mistral": ["Prompt contains 200000 tokens, too large for model with 131072 maximum context length"],
    "xAI": ["This model's maximum prompt length is 131072 but the request contains 537812 tokens."],
    "Groq": ["Please reduce the length of the messages or completion."],
    "Moonshot": ["Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)"],
    "MiniMax": ["invalid params, context window exceeds limit (2013)"],
    "Qwen": ["<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]"],
    "Zhipu": ["Prompt exceeds max length"],
    "Cohere": ["too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292."],
    "GitHub Copilot": ["prompt token count of 200000 exceeds the limit of 128000"],
    "LiteLLM and other proxies": [
        "litellm.ContextWindowExceededError: OpenAIException - it did not fit",
        "Context length exceeded",
        "context_length_exceeded",
    ],
}

OTHERS = {
    "a rate limit": "Rate limit reached for requests. Please try again in 20s.",
    "tokens per minute at OpenAI": (
        "Request too large for gpt-5 in organization org-x on tokens per min (TPM): Limit 10000, Requested 12000. The "
        "input "
        "or output tokens must be reduced in order to run successfully."
    ),
    "tokens per minute at Groq": (
        "Request too large for model `llama-3.1-8b-instant` in organization `org_x` service tier `on_demand` on tokens "
        "per "
        "minute (TPM): Limit 6000, Requested 7000, please reduce your message size and try again."
    ),
    "throttling at Bedrock": "ThrottlingException: Too many tokens, please wait before trying again.",
    "a quota at Gemini": (
        "You exceeded your current quota. Quota exceeded for metric: generate_content_free_tier_input_token_count, "
        "limit: 250000. The input token count (300000) exceeds the maximum number of tokens."
    ),
    "a quota at OpenAI": "You exceeded your current quota, please check your plan and billing details.",
    "max_tokens beyond the model's": (
        "max_tokens is too large: 50000. This model supports at most 16384 completion tokens, whereas you provided "
        "50000."
    ),
    "max_tokens beyond the range at DeepSeek": "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
    "max_tokens beyond the range at Qwen": "Range of max_tokens should be [1, 8192]",
    "max_tokens beyond Anthropic's": (
        "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for this model"
    ),
    "max_tokens below one": "max_tokens must be at least 1, got 0.",
    "max_tokens that never fits at vLLM": (
        "'max_tokens' or 'max_completion_tokens' is too large: 40000. This model's maximum context length is 32768 "
        "tokens and "
        "your request has 25 input tokens (40000 > 32768 - 25)."
    ),
    "max_tokens that never fits at OpenAI": (
        "This model's maximum context length is 4097 tokens. However, you requested 5020 tokens (20 in the messages, "
        "5000 in "
        "the completion). Please reduce the length of the messages or completion."
    ),
    "max_tokens that never fits, newer vLLM": (
        "This model's maximum context length is 32,768 tokens. However, you requested 40,000 output tokens and your "
        "prompt "
        "contains at least 1 input tokens."
    ),
    "max_tokens that never fits at SGLang": (
        "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of "
        "9030 "
        "tokens: 30 tokens from the input messages and 9000 tokens for the completion."
    ),
    "max_tokens that never fits at OpenRouter": (
        "This endpoint's maximum context length is 8192 tokens. However, you requested about 9000 tokens (10 of text "
        "input, "
        "8990 in the output)."
    ),
    "max_tokens that never fits at Anthropic": (
        "input length and `max_tokens` exceed context limit: 10 + 200000 > 200000"
    ),
    "max_tokens that never fits at TGI": (
        "`inputs` tokens + `max_new_tokens` must be <= 1512. Given: 10 `inputs` tokens and 2000 `max_new_tokens`"
    ),
    "a name that is too long": (
        "Invalid 'tools[0].function.name': string too long. Expected a string with maximum length 64."
    ),
    "a body that is too large": "413 Request Entity Too Large",
    "a wrong key": "Incorrect API key provided: sk-****.",
    "a model that is not there": "The model `gpt-9` does not exist or you do not have access to it.",
    "a crash": "model runner has unexpectedly stopped, this may be due to resource limitations",
    "a harmless word": "The context is large, but acceptable.",
    "silence": "",
}


@pytest.mark.parametrize(("whose", "text"), [(whose, text) for whose, texts in EXAMPLES.items() for text in texts])
def test_a_wording_of_a_full_context_is_told(whose: str, text: str) -> None:
    assert is_overlong(text, status=400)
    assert is_overlong(text.upper(), status=400)
    assert is_overlong(f"Upstream said:\n  {text}", status=None)
    row = next(row for row in WORDINGS if row.whose == whose)
    assert row.pattern.search(plain_text(text)), "the example shows another row's wording"


def test_every_wording_has_an_example() -> None:
    assert [row.whose for row in WORDINGS] == list(EXAMPLES)


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_a_complaint_that_only_resembles_it_is_another_failure(text: str) -> None:
    assert not is_overlong(text, status=400)


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_code_says_it_whatever_the_words(code: str) -> None:
    assert is_overlong("it did not fit", codes=("invalid_request_error", code.upper()), status=400)


@pytest.mark.parametrize("status", [401, 402, 403, 404, 408, 429])
def test_a_status_that_speaks_of_something_else_wins_over_the_words(status: int) -> None:
    assert not is_overlong("prompt is too long: 5 tokens > 4 maximum", status=status)


def test_a_rate_limit_by_its_code_wins_over_the_words() -> None:
    text = "Please reduce the length of the messages or completion."
    assert is_overlong(text, codes=("invalid_request_error",), status=413)
    assert not is_overlong(text, codes=("tokens", "rate_limit_exceeded"), status=413)


def test_a_quoted_prompt_after_the_words_is_not_read() -> None:
    assert not is_overlong("invalid prompt: " + "x" * 30_000 + " maximum context length")
