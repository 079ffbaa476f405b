"""Sealed parts of an item: what only its provider can read or verify, so that any change would void it.

Invariant: nothing here is ever changed by what this library does to items (redaction, bounded storage).
"""

from __future__ import annotations

from typing import Any

__all__ = ["SEALED", "SIGNATURES", "is_signed"]

SIGNATURES = frozenset({"signature", "thoughtSignature", "thinkingSignature", "thought_signature"})
"""Names of what proves that a block is as its provider made it."""

SEALED = frozenset({"encrypted_content", "encrypted_function_args", *SIGNATURES})
"""Names of what only the provider can read."""


def is_signed(value: dict[Any, Any]) -> bool:
    """Whether a block carries a signature; then it stays whole."""
    return any(value.get(name) for name in SIGNATURES)
