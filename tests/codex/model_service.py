"""What stands in for the model: a service on this machine that answers each request with a text.

Only the model is replaced; whoever asks it is the real Codex.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["ModelService"]


class ModelService:
    """Speaks as much of the Responses API as a turn needs. `requests` are the bodies that came, in order."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> ModelService:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def texts(self) -> list[str]:
        """The texts of the messages that the last request holds, in order."""
        return [
            part["text"]
            for item in self.requests[-1]["input"]
            if item.get("type", "message") == "message"
            for part in item["content"]
            if isinstance(part, dict) and "text" in part
        ]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *arguments: object) -> None:
                return

            def do_GET(self) -> None:
                self._answer("application/json", b'{"object":"list","data":[],"models":[]}')

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                service.requests.append(body)
                self._answer("text/event-stream", _stream(len(service.requests)))

            def _answer(self, kind: str, data: bytes) -> None:
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        return Handler


def _stream(number: int) -> bytes:
    """The server-sent events of one answer: a message, and the end."""
    message = {
        "type": "message",
        "id": f"msg_{number}",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": f"reply {number}", "annotations": []}],
    }
    usage = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    response = {"id": f"resp_{number}", "object": "response"}
    events = [
        {"type": "response.created", "response": {**response, "status": "in_progress"}},
        {"type": "response.output_item.done", "output_index": 0, "item": message},
        {
            "type": "response.completed",
            "response": {**response, "status": "completed", "output": [message], "usage": usage},
        },
    ]
    return b"".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events)
