"""What survives where the endpoint speaks another dialect than the harness.

`REQUESTS` and `ANSWERS` say it row by row; the tests prove each cell, and `markdown` shows it to readers. What would
change the meaning of a request if it were left out is refused.
"""

from collections.abc import Iterable, Mapping

from attrs import evolve, frozen

from rollout_fsm.gateway.dialects.dialect import DialectError
from rollout_fsm.gateway.dialects.extras import crossing
from rollout_fsm.messages import JSON, Request, Sampling

KEPT = "kept"
LEFT_OUT = "left out"
REFUSED = "refused"
NONE = "—"
"""No other dialect has it."""


@frozen
class Row:
    """What becomes of a thing in each dialect: `KEPT`, `LEFT_OUT`, `REFUSED`, `NONE`, or how it is said there."""

    thing: str
    chat: str
    responses: str
    messages: str


REQUESTS: tuple[Row, ...] = (
    Row("system prompt", KEPT, "`instructions`", "`system`"),
    Row("later system messages", KEPT, KEPT, KEPT),
    Row("text of users and of the assistant", KEPT, KEPT, KEPT),
    Row("image by URL or data URL", KEPT, KEPT, KEPT),
    Row("detail of an image", KEPT, KEPT, LEFT_OUT),
    Row("document by its bytes", KEPT, KEPT, KEPT),
    Row("document by URL", REFUSED, KEPT, KEPT),
    Row("document as plain text", "text", "text", NONE),
    Row("file by its id at a provider", REFUSED, REFUSED, REFUSED),
    Row("tool calls, with id, name, arguments", KEPT, KEPT, "arguments as an object"),
    Row("results of tools", KEPT, KEPT, KEPT),
    Row("images in results of tools", "in a user's message after them", KEPT, KEPT),
    Row("mark of a failed result", LEFT_OUT, LEFT_OUT, NONE),
    Row("reasoning that can be read", "`reasoning_content`", LEFT_OUT, LEFT_OUT),
    Row("reasoning that is sealed by another provider", LEFT_OUT, LEFT_OUT, LEFT_OUT),
    Row("cache marks", LEFT_OUT, LEFT_OUT, LEFT_OUT),
    Row("tools with a JSON schema", KEPT, KEPT, KEPT),
    Row("custom tools, which take free text", KEPT, KEPT, REFUSED),
    Row("tools of a provider's own", REFUSED, REFUSED, REFUSED),
    Row("choice of tool", KEPT, KEPT, KEPT),
    Row("no calls in parallel", KEPT, KEPT, "`disable_parallel_tool_use`"),
    Row("temperature, top_p, top_k", KEPT, KEPT, KEPT),
    Row("limit of tokens", KEPT, "`max_output_tokens`", KEPT),
    Row("stop sequences", KEPT, REFUSED, "`stop_sequences`"),
    Row("seed", NONE, LEFT_OUT, LEFT_OUT),
    Row("effort of reasoning", KEPT, "`reasoning.effort`", "`output_config.effort`"),
    Row("answer by a JSON schema", KEPT, "`text.format`", "`output_config.format`"),
    Row("answer in any JSON", KEPT, "`text.format`", LEFT_OUT),
    Row("id of the end user", KEPT, KEPT, "`metadata.user_id`"),
    Row("settings of one API only", LEFT_OUT, LEFT_OUT, LEFT_OUT),
)
"""A request of another dialect, on its way to an endpoint of these."""

ANSWERS: tuple[Row, ...] = (
    Row("text", KEPT, KEPT, KEPT),
    Row("refusal", "text", "text", "text"),
    Row("tool calls, with id, name, arguments", KEPT, KEPT, "arguments as an object"),
    Row("reasoning that can be read", "`reasoning_content`", "a `reasoning` item", "a `thinking` block"),
    Row("reasoning that is sealed", "kept by the engine", "kept by the engine", "kept by the engine"),
    Row("reason of the end: stop, length", KEPT, KEPT, KEPT),
    Row("usage", KEPT, KEPT, KEPT),
    Row("usage that is unknown", LEFT_OUT, "null", "zeros"),
    Row("citations and annotations", LEFT_OUT, LEFT_OUT, LEFT_OUT),
    Row("token ids and logprobs", "on the trace", "on the trace", "on the trace"),
)
"""An answer of an endpoint of another dialect, on its way to a harness of these."""


def markdown(rows: Iterable[Row], title: str) -> str:
    """The rows as a table in Markdown."""
    lines = [f"| {title} | Chat Completions | Responses | Messages |", "|---|---|---|---|"]
    lines += [f"| {row.thing} | {row.chat} | {row.responses} | {row.messages} |" for row in rows]
    return "\n".join(lines)


def carried(request: Request, sampling: Sampling, target: str) -> Sampling:
    """The settings for an endpoint of the dialect `target`: those of a request in another dialect, as that has them,
    and the run's own, which are in the endpoint's words. Raises `DialectError` for a tool of the provider's own."""
    native = request.native
    if native is None or native.dialect == target:
        return sampling
    _refuse_tools(native.body, native.dialect, target)
    asked = request.sampling.extra
    own = {name: value for name, value in sampling.extra.items() if name not in asked or asked[name] != value}
    kept = {name: value for name, value in asked.items() if name not in own and name in sampling.extra}
    return evolve(sampling, extra={**crossing(kept, native.dialect, target), **own})


def _refuse_tools(body: Mapping[str, JSON], source: str, target: str) -> None:
    tools = body.get("tools")
    for place, tool in enumerate(tools if isinstance(tools, list) else ()):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind not in (None, "function", "custom"):
            raise DialectError(
                f"tools[{place}].type: {kind!r} is a tool of the {source} API's own, and the model's endpoint speaks "
                f"{target}: leave it out, or use a model whose endpoint speaks {source}",
                param=f"tools[{place}].type",
            )
