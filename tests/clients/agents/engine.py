"""An engine whose model calls a tool some times, with a new id each time, and then says that it is done."""

from __future__ import annotations

import itertools
import json
import uuid
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.clients.served import Served

CALLS = 5
"""Tool results after the last user message at which the model is done."""
USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}


class _Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._whole({"object": "list", "data": [{"id": "m", "object": "model"}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/v1/responses":
            self._whole(response_to(asked["input"]))
            return
        if self.path == "/v1/messages":
            self._whole(message_to(asked["messages"]))
            return
        message = answer_to(asked["messages"])
        reason = "tool_calls" if "tool_calls" in message else "stop"
        shell = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": 1, "model": "m"}
        if not asked.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            self._whole({**shell, "object": "chat.completion", "choices": [choice], "usage": USAGE})
            return
        deltas = [(message, None), ({}, reason)]
        choices = [[{"index": 0, "delta": delta, "finish_reason": end}] for delta, end in deltas]
        chunks = [{**shell, "object": "chat.completion.chunk", "choices": choice} for choice in choices]
        self._events([*chunks, {**shell, "object": "chat.completion.chunk", "choices": [], "usage": USAGE}])

    def _whole(self, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _events(self, chunks: list[dict[str, Any]]) -> None:
        body = b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks) + b"data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def response_to(items: list[dict[str, Any]]) -> dict[str, Any]:
    """The same in the Responses API."""
    kinds = {"function_call_output": "tool", "function_call": "assistant", "reasoning": "assistant"}
    message = answer_to([{"role": item.get("role") or kinds[item["type"]]} for item in items])
    said: list[dict[str, Any]] = [{"type": "reasoning", "id": f"rs_{uuid.uuid4().hex}", "summary": []}]
    calls = message.get("tool_calls", ())
    said += [{"type": "function_call", "id": "fc_1", "call_id": call["id"], **call["function"]} for call in calls]
    if message["content"]:
        text = {"type": "output_text", "text": message["content"], "annotations": []}
        said.append({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]})
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    shell = {"object": "response", "created_at": 1, "model": "m", "status": "completed", "tool_choice": "auto"}
    usage = {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12, **details}
    response_id = f"resp_{uuid.uuid4().hex}"
    return {**shell, "id": response_id, "output": said, "usage": usage, "tools": [], "parallel_tool_calls": True}


def message_to(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The same in Anthropic's API, where results of tools are said by the user."""
    roles = []
    for message in messages:
        content = message["content"]
        is_result = isinstance(content, list) and content[0]["type"] == "tool_result"
        roles.append({"role": "tool" if is_result else message["role"]})
    answer = answer_to(roles)
    said: list[dict[str, Any]] = [{"type": "text", "text": answer["content"] or "Let me see."}]
    for call in answer.get("tool_calls", ()):
        function = call["function"]
        use = {"type": "tool_use", "id": f"toolu_{call['id']}", "name": function["name"]}
        said.append({**use, "input": json.loads(function["arguments"])})
    shell = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    reason = "tool_use" if "tool_calls" in answer else "end_turn"
    return {**shell, "content": said, "stop_reason": reason, "usage": {"input_tokens": 9, "output_tokens": 3}}


def answer_to(messages: list[dict[str, Any]]) -> dict[str, Any]:
    since = itertools.takewhile(lambda message: message["role"] != "user", reversed(messages))
    results = sum(message["role"] == "tool" for message in since)
    if results >= CALLS:
        return {"role": "assistant", "content": f"Done: {uuid.uuid4().hex}"}
    function = {"name": "look", "arguments": json.dumps({"page": results})}
    call = {"index": 0, "id": f"call_{uuid.uuid4().hex}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


class ToolEngine(Served):
    handler = _Model
