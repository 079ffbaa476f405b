"""Text that a program put before the model in somebody's name: surroundings, instructions, notes.

Invariant: it is told by how programs wrap it, whole, and by nothing else; so what a person typed is taken
for it only if it is wrapped as a whole.
"""

from __future__ import annotations

import re

__all__ = ["is_injected"]

_WRAPPED = re.compile(
    r"\s*(?:<([a-z][a-z_ ]*)>.*</\1>\s*\Z|# AGENTS\.md instructions\b|<user_instructions>)", re.DOTALL
)


def is_injected(text: str) -> bool:
    """Whether a program wrote the text of a message, not the person in whose name it stands."""
    return _WRAPPED.match(text) is not None
