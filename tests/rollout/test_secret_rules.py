"""The built-in rules: what they find is gone, what they don't find is as it was."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import RedactionUnavailable, ResponseItem, RolloutItem, encode_item, redact_item
from protocol.redact import marker
from rollout import SecretRules
from tests.rollout.secrets_made import SECRETS, github_token

RULES = SecretRules()
TOKEN = github_token()


def recorded(item: RolloutItem) -> bytes:
    return encode_item(redact_item(item, RULES), timestamp="T")


@pytest.mark.case("B102")
@pytest.mark.parametrize("rule", SECRETS)
def test_secret_is_replaced_by_the_name_of_its_rule(rule: str) -> None:
    """The text around it stays as it was."""
    text, secret = SECRETS[rule]
    redacted = RULES(text)
    assert secret not in redacted
    assert marker(rule) in redacted
    assert redacted.startswith(text[:4])
    assert RULES(redacted) == redacted


@pytest.mark.case("B102")
@pytest.mark.parametrize("rule", SECRETS)
@pytest.mark.parametrize("levels", [0, 1, 2, 3])
def test_secret_is_found_however_json_holds_it(rule: str, levels: int) -> None:
    """In a text, and in JSON in JSON of any depth, before it is known what stands there."""
    text, secret = SECRETS[rule]
    for _ in range(levels):
        text = json.dumps({"line": text, "n": [1]})
    item = ResponseItem.function_call_output(call_id="c", output=text)
    line = recorded(item)
    for part in secret.split("\n"):
        assert part.encode() not in line
    if levels:
        json.loads(json.loads(line)["payload"]["output"])


def test_letter_escapes_hide_nothing() -> None:
    """JSON may write any letter as an escape."""
    hidden = "".join(f"\\u{ord(letter):04x}" for letter in TOKEN)
    line = recorded(ResponseItem.function_call(name="n", arguments=f'{{"a":"{hidden}"}}', call_id="c"))
    assert json.loads(json.loads(line)["payload"]["arguments"]) == {"a": marker("github-pat")}


@pytest.mark.parametrize(
    "around", ["\x1b[31m{}\x1b[0m", "\\n{}\\n", "'{}'", "\t{}\r\n", "\ufeff{}", "x\u2028{}"]
)
@pytest.mark.parametrize("rule", ["github-pat", "slack-bot-token", "aws-access-key-id"])
def test_what_stands_right_before_a_secret_hides_nothing(rule: str, around: str) -> None:
    """The colour of a terminal, an escape that was printed, a quote."""
    secret = SECRETS[rule][1]
    text = around.format(secret)
    assert RULES(text) == around.format(marker(rule))
    line = recorded(ResponseItem.function_call_output(call_id="c", output=text))
    assert secret.encode() not in line


def test_secret_in_base64_is_found() -> None:
    """Its code goes as a whole."""
    code = base64.b64encode(TOKEN.encode()).decode()
    assert RULES(f"data: {code}.") == f"data: {marker('github-pat')}."


@pytest.mark.parametrize(
    "text",
    [
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "01960000-0000-7000-8000-000000000100",
        "PASSWORD=${DB_PASSWORD}",
        "MAX_TOKEN=100000",
        "API_KEY = os.environ['API_KEY']",
        "self.token = get_token()",
        "sha256:" + "0123456789abcdef" * 4,
        "data:image/png;base64," + base64.b64encode(TOKEN.encode() * 9).decode(),
        "\ud800 lone, and \x00 NUL",
        "",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    """Hashes, ids, names of variables, images: the very same text."""
    assert RULES(text) is text


def test_text_around_a_secret_keeps_every_character() -> None:
    """Letters of several bytes, lone surrogates and other secrets beside it."""
    text = f"é\ud800 {TOKEN} 漢\U0001f600 {github_token(2)}"
    found = marker("github-pat")
    assert RULES(text) == f"é\ud800 {found} 漢\U0001f600 {found}"


@given(st.text(max_size=40), st.text(max_size=40), st.sampled_from(sorted(SECRETS)))
def test_first_look_misses_nothing_that_the_second_finds(before: str, after: str, rule: str) -> None:
    """Whatever surrounds a secret: if a text would be changed, the payload is looked at closely."""
    text = f"{before} {SECRETS[rule][0]} {after}"
    item = ResponseItem.function_call_output(call_id="c", output=text)
    if RULES(text) != text:
        payload = bytearray()
        payload += encode_item(item, timestamp="T")
        assert RULES.may_change(bytes(payload))
        assert redact_item(item, RULES) is not item


def test_some_rules_can_be_chosen_or_left_out() -> None:
    """By the names that stand in the markers; a name that nobody knows is refused."""
    text, _ = SECRETS["github-pat"]
    assert SecretRules(only=["slack-bot-token"])(text) is text
    assert SecretRules(without=["github-pat"])(text) is text
    assert SecretRules(only=["github-pat"])(text) != text
    with pytest.raises(ValueError, match="no-such-rule"):
        SecretRules(without=["no-such-rule"])


@pytest.mark.parametrize(
    "text",
    [
        "A_TOKEN=",
        "LONGER_A_TOKEN=",
        "AKIA",
        "ghp_",
        "authorization: bearer ",
        "\\",
        "\x1b[",
        '"',
        "[redacted:x]",
    ],
)
def test_text_that_almost_matches_everywhere_is_no_trap(text: str) -> None:
    """Its time grows as the text does: a tool's output is anybody's."""
    assert len(RULES(text * 100_000)) > 1000


def test_text_that_takes_too_long_goes_whole() -> None:
    """Better than to hold up the agent, or to let it pass."""

    class Slow:
        def scan(self, data: bytes, *, timeout: float | None) -> list[object]:
            raise TimeoutError

    rules = SecretRules()
    rules._catalog = rules._catalog._replace(scanner=Slow())  # type: ignore[arg-type]
    assert rules("some text, whatever it is") == marker("too-slow")
    assert rules.may_change(b"{}")


def test_one_redactor_serves_many_threads() -> None:
    """It holds no state but its rules."""
    wrong: list[str] = []

    def work() -> None:
        wrong.extend(text for _ in range(200) if TOKEN in (text := RULES(f"x {TOKEN}")))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_missing_package_is_an_error_that_says_what_to_install() -> None:
    """It is an extra: who doesn't have it learns its name."""
    code = (
        "import sys; sys.modules['kingfisher_sdk'] = None\n"
        "from rollout import SecretRules\n"
        "from protocol import RedactionUnavailable\n"
        "try: SecretRules()\n"
        "except RedactionUnavailable as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "rollout-recorder[redact]" in done.stdout
    assert RedactionUnavailable.code == "redaction_unavailable"
