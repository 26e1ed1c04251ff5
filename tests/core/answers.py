"""Answers of engines as bytes, in the shapes of the three APIs."""

import json

from concur_proxy.model import FinishReason, Usage

HARD_TEXT = 'say "usage": {"prompt_tokens": 1} and "choices":[] é 日本 \\ \n\n data: {"usage":{}} \u2028'


def event(body, *, name=None, end="\n", space=" "):
    head = f"event: {name}{end}" if name else ""
    return f"{head}data:{space}{body if isinstance(body, str) else json.dumps(body)}{end}{end}".encode()


def chunk(delta=None, finish=None, **fields):
    choices = [] if delta is None else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m", "choices": choices, **fields}


USAGE = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
DETAILS = {"prompt_tokens_details": {"cached_tokens": 64}}
USAGE_CHUNK = chunk(usage=USAGE | DETAILS)
CHAT_EVENTS = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "hello"}),
    chunk({"content": HARD_TEXT}),
    chunk({}, "stop"),
]
CHAT_USAGE = Usage(100, 7, 64)


def chat_stream(*, end="\n", space=" ", usage=USAGE_CHUNK):
    events = [event(body, end=end, space=space) for body in CHAT_EVENTS]
    return b": ping" + 2 * end.encode() + b"".join(events) + (event(usage, end=end) if usage else b"") + done(end)


def done(end="\n"):
    return event("[DONE]", end=end)


def responses_stream(status="completed", output=()):
    details = {"reason": "max_output_tokens"} if status == "incomplete" else None
    begun = {"id": "resp_1a", "object": "response", "status": "in_progress", "usage": None, "incomplete_details": None}
    usage = {"input_tokens": 50, "input_tokens_details": {"cached_tokens": 16}, "output_tokens": 5}
    ended = begun | {"status": status, "output": list(output), "incomplete_details": details, "usage": usage}
    bodies = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_text.delta", "delta": "hi", "item_id": "msg_1"},
        {"type": f"response.{status}", "response": ended},
    ]
    return b"".join(event(body, name=body["type"]) for body in bodies)


def messages_stream(stop="end_turn", *, cache=True):
    told = {"input_tokens": 10, "output_tokens": 1}
    if cache:
        told |= {"cache_read_input_tokens": 80, "cache_creation_input_tokens": 5}
    bodies = [
        {"type": "message_start", "message": {"id": "msg_1", "type": "message", "content": [], "usage": told}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
        {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    return b"".join(event(body, name=body["type"]) for body in bodies)


def chat_body(content="hi", finish="stop", usage=USAGE | DETAILS, **fields):
    message = {"role": "assistant", "content": content, "tool_calls": [], **fields}
    choices = [{"index": 0, "message": message, "finish_reason": finish, "stop_reason": None}]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "choices": choices,
        "usage": usage,
        "prompt_logprobs": None,
    }


STREAMS = [
    (chat_stream(), CHAT_USAGE, FinishReason.STOP, None),
    (chat_stream(end="\r\n", space=""), CHAT_USAGE, FinishReason.STOP, None),
    (responses_stream(), Usage(50, 5, 16), FinishReason.STOP, "resp_1a"),
    (responses_stream("incomplete"), Usage(50, 5, 16), FinishReason.LENGTH, "resp_1a"),
    (
        responses_stream(output=[{"type": "function_call", "arguments": "{}"}]),
        Usage(50, 5, 16),
        FinishReason.TOOL_CALLS,
        "resp_1a",
    ),
    (messages_stream(), Usage(95, 9, 80), FinishReason.STOP, None),
    (messages_stream("tool_use", cache=False), Usage(10, 9), FinishReason.TOOL_CALLS, None),
]
