"""What programs put before the model is told from what a person typed."""

from __future__ import annotations

import pytest

from thread_store.context.injected_text import is_injected


@pytest.mark.case("B123")
@pytest.mark.parametrize(
    "text",
    [
        "<environment_context>\n<cwd>/x</cwd>\n</environment_context>",
        "  <turn_aborted>stopped</turn_aborted>\n",
        "# AGENTS.md instructions for /srv/demo\n\nbe brief",
        "<user_instructions>\nbe brief",
    ],
)
def test_wrapped_text_is_injected(text: str) -> None:
    """Whole, by the marks that programs use."""
    assert is_injected(text)


@pytest.mark.parametrize(
    "text", ["", "fix <b>this</b>", "<b>this</b> is wrong", "<B>x</B>", "# AGENTS.md is old"]
)
def test_typed_text_is_not_injected(text: str) -> None:
    """Marks inside it, or at one end only, are somebody's words."""
    assert not is_injected(text)
