"""Files, batches and lists as OpenAI's API shows them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from concur_proxy.batch.database import Row
from concur_proxy.batch.files import Page

Json = dict[str, Any]
TIMES = (
    *("in_progress_at", "expires_at", "finalizing_at", "completed_at"),
    *("failed_at", "expired_at", "cancelling_at", "cancelled_at"),
)


def file_object(row: Row) -> Json:
    return {
        "id": row["id"],
        "object": "file",
        "bytes": row["size"],
        "created_at": row["created_at"],
        "expires_at": row["expires_at"],
        "filename": row["filename"],
        "purpose": row["purpose"],
        "status": "processed",
        "status_details": None,
    }


def deleted(file: str) -> Json:
    return {"id": file, "object": "file", "deleted": True}


def batch_object(row: Row) -> Json:
    return {
        "id": row["id"],
        "object": "batch",
        "endpoint": row["endpoint"],
        "model": row["model"],
        "errors": {"object": "list", "data": orjson.loads(row["errors"])} if row["errors"] else None,
        "input_file_id": row["input_file"],
        "completion_window": row["completion_window"],
        "status": row["status"],
        "output_file_id": row["output_file"],
        "error_file_id": row["error_file"],
        "created_at": row["created_at"],
        **{name: row[name] for name in TIMES},
        "request_counts": {name: row[name] for name in ("total", "completed", "failed")},
        "usage": {
            "input_tokens": row["input_tokens"],
            "input_tokens_details": {"cached_tokens": row["cached_tokens"]},
            "output_tokens": row["output_tokens"],
            "output_tokens_details": {"reasoning_tokens": row["reasoning_tokens"]},
            "total_tokens": row["input_tokens"] + row["output_tokens"],
        },
        "metadata": orjson.loads(row["metadata"]) if row["metadata"] else None,
    }


def list_object(rows: Sequence[Row], page: Page, shown: Callable[[Row], Json]) -> Json:
    """Return a page of ``rows``, which has one more where there are more."""
    data = [shown(row) for row in rows[: page.limit]]
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": len(rows) > page.limit,
    }
