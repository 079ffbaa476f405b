"""Secrets for tests: made when they are needed, so that no file holds one, and of no use anywhere."""

from __future__ import annotations

import random
import string

__all__ = ["SECRETS", "github_token"]

_LETTERS = string.ascii_letters + string.digits
_BASE32 = string.ascii_uppercase + "234567"


def _token(random_: random.Random, size: int, alphabet: str = _LETTERS) -> str:
    return "".join(random_.choice(alphabet) for _ in range(size))


def github_token(seed: int = 0) -> str:
    """A token as GitHub makes them."""
    return "ghp_" + _token(random.Random(seed), 36)


def _made(seed: int) -> dict[str, tuple[str, str]]:
    """By rule: a text, and what is secret in it."""
    random_ = random.Random(seed)
    github = github_token(seed)
    workspace, bot = (_token(random_, 12, string.digits) for _ in range(2))
    slack = f"xoxb-{workspace}-{bot}-{_token(random_, 24)}"
    aws = "AKIA" + _token(random_, 16, _BASE32)
    bearer, password, in_address = _token(random_, 40), _token(random_, 14), _token(random_, 20)
    lines = "\n".join(_token(random_, 64) for _ in range(9))
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{lines}\n-----END RSA PRIVATE KEY-----"
    return {
        "github-pat": (f"use {github}, please", github),
        "slack-bot-token": (f"SLACK: {slack}", slack),
        "aws-access-key-id": (f"key {aws} of staging", aws),
        "authorization-header": (f"> Authorization: Bearer {bearer}\n> Accept: */*", bearer),
        "assigned-secret": (f"HOME=/root\nDB_PASSWORD={password}\nLANG=C", password),
        "generic-credential-uri": (f"postgres://app:{in_address}@db.acme.io:5432/x", in_address),
        "private-key": (f"here:\n{key}\nthat is all", lines),
    }


SECRETS = _made(1)
