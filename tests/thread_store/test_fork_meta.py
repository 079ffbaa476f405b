"""The meta line of a fork: its length, and that nothing of the payload is lost."""

from __future__ import annotations

import json

from thread_store.forks.fork_meta import ALIGNMENT_BYTES, meta_line, padded_meta_line


def test_padded_line_ends_on_a_block_whatever_its_length() -> None:
    """Also where it ends there by itself, and where the padding's own key has no room in the last block."""
    unpadded = 0
    for size in range(ALIGNMENT_BYTES + 1):
        payload = {"id": "x", "x_task": "y" * size}
        line = padded_meta_line(payload, 0)
        assert len(line) % ALIGNMENT_BYTES == 0
        found = json.loads(line)["payload"]
        unpadded += "x_pad" not in found
        assert set(found.pop("x_pad", "")) <= {" "}
        assert found == payload
        assert len(line) <= len(meta_line(payload, 0)) + ALIGNMENT_BYTES + 10
    assert unpadded == 1
