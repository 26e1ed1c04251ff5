"""An engine that gives the same streams to everybody, as Anthropic and OpenAI have them; an endless one for chat."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.clients.served import Served

USAGE = {"input_tokens": 3, "output_tokens": 2}
MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "canned", "content": []}
MESSAGES: list[dict[str, Any]] = [
    {"type": "message_start", "message": {**MESSAGE, "stop_reason": None, "stop_sequence": None, "usage": USAGE}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": USAGE},
    {"type": "message_stop"},
]
RESPONSE = {"id": "resp_1", "object": "response", "created_at": 1, "model": "canned", "output": []}
SETTINGS = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
PLACE = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
RESPONSES: list[dict[str, Any]] = [
    {"type": "response.created", "sequence_number": 0, "response": {**RESPONSE, **SETTINGS, "status": "in_progress"}},
    {"type": "response.output_text.delta", "sequence_number": 1, **PLACE, "delta": "Hello", "logprobs": []},
    {"type": "response.completed", "sequence_number": 2, "response": {**RESPONSE, **SETTINGS, "status": "completed"}},
]
CHAT = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "canned"}
CHUNK = {**CHAT, "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": None}]}
REFUSAL = {"type": "error", "error": {"type": "invalid_request_error", "message": "max_tokens: must be positive"}}


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        known = self.path in {"/health", "/v1/models"}
        self._whole(200 if known else 404, {"object": "list", "data": [{"id": "canned", "object": "model"}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if asked.get("max_tokens") == -1:
            self._whole(400, REFUSAL)
        elif self.path == "/v1/chat/completions":
            self._stream([CHUNK])
            self.connection.recv(1)  # until the client leaves
        else:
            self._stream(MESSAGES if self.path == "/v1/messages" else RESPONSES, named=True)

    def _whole(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, events: list[dict[str, Any]], *, named: bool = False) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        for event in events:
            name = f"event: {event['type']}\n" if named else ""
            self.wfile.write(f"{name}data: {json.dumps(event)}\n\n".encode())


class CannedEngine(Served):
    handler = _Answers
