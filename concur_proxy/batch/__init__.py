"""The OpenAI Batch API: files and batches, kept in a durable store, played through the proxy's own data path.

**File**: bytes that a client uploaded, or what a batch has answered. **Batch**: the lines of one input file.
**Line**: one request, from its claim to its answer. **Owner**: the API key that a file or a batch belongs to.
**Runner**: the proxy process that plays a batch; it holds the batch by a lease that it renews.

    api ──▶ store ◀── runner ──▶ job (one batch) ──▶ sending (one line) ──▶ entry ──▶ the data path

``store`` decides what happened, in one transaction each; whoever is killed starts again from there. ``lines``,
``multipart``, ``requests`` and ``objects`` are pure.
"""
