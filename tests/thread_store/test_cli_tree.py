"""`rollout tree`: every thread once, below its parent, and what can't be told is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.thread_store.conftest import Run, objects
from tests.thread_store.histories import base_of, meta, place_of, turns, uuid, write_thread
from thread_store.cli.failures import ExitCode
from thread_store.cli.short_ids import ShortIds
from thread_store.home import Home

ROOT, FORK, AGENT, GRANDCHILD, ORPHAN = (uuid(0xC01 + number) for number in range(5))


def spawned(parent: str, **names: Any) -> dict[str, Any]:
    spawn = {"parent_thread_id": parent, "depth": 1, **names}
    return {"parent_thread_id": parent, "source": {"subagent": {"thread_spawn": spawn}}, **names}


@pytest.fixture
def family(home: Path) -> Path:
    """A thread, its fork, the fork's fork, a sub-agent, and a fork of a thread that is gone."""
    at = Home(home)
    write_thread(at, ROOT, turns(2), git={"branch": "main"})
    write_thread(at, FORK, turns(1), forked_from_id=ROOT, forked_from_ordinal_exclusive=9)
    write_thread(at, AGENT, turns(1), **spawned(ROOT, agent_nickname="Ada", agent_role="reviewer"))
    write_thread(at, GRANDCHILD, turns(1), forked_from_id=FORK)
    write_thread(at, ORPHAN, turns(1), forked_from_id=uuid(0xFFF), forked_from_ordinal_exclusive=4)
    return home


def test_families_are_drawn_newest_first(rollout: Run, family: Path) -> None:
    """Forks with the item that they share last, sub-agents by name and role, orphans with whom they miss."""
    done = rollout("tree")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().splitlines() == [
        f"0c05  (fork of {uuid(0xFFF)}#3, which is not here)",
        "0c01  demo@main 2026-03-04 05:06",
        "├─ 0c02  (at #8)",
        "│  └─ 0c04  (fork)",
        "└─ 0c03  (sub-agent Ada, reviewer)",
    ]


def test_tree_in_ascii(rollout: Run, family: Path) -> None:
    """Where the terminal has no lines to draw with, there are others."""
    lines = rollout("tree", ROOT, "--ascii").stdout.decode().splitlines()
    assert lines[1:] == [
        "|- 0c02  (at #8)",
        "|  `- 0c04  (fork)",
        "`- 0c03  (sub-agent Ada, reviewer)",
    ]


def test_thread_names_its_family_and_is_pointed_at(rollout: Run, family: Path) -> None:
    """From its oldest ancestor on; other families are left out."""
    lines = rollout("tree", GRANDCHILD).stdout.decode().splitlines()
    assert len(lines) == 4
    assert [each for each in lines if "→ this one" in each] == ["│  └─ 0c04  (fork)  → this one"]


def test_tree_as_json_is_one_object_a_thread(rollout: Run, family: Path) -> None:
    """Parents before children, each with its relation, its point and its files."""
    found = objects(rollout("tree", "--json").stdout)
    assert [each["thread"] for each in found] == [ORPHAN, ROOT, FORK, GRANDCHILD, AGENT]
    assert {each["kind"] for each in found} == {"node"}
    orphan, root, fork, _, agent = found
    assert (orphan["orphan"], orphan["at"]) == ("gone", 3)
    assert (fork["relation"], fork["parent"], fork["at"]) == ("fork", ROOT, 8)
    assert (agent["relation"], agent["nickname"], agent["role"]) == ("subagent", "Ada", "reviewer")
    (file,) = root["rollouts"]
    assert (file["id"], file["base"], file["archived"]) == (ROOT, None, False)
    assert Path(file["path"]).name.endswith(f"{ROOT}.jsonl")


def test_revert_and_reference_are_told(rollout: Run, home: Path) -> None:
    """A reverted thread is one line that says where it ends; JSON names what each of its files rests on."""
    path = write_thread(Home(home), ROOT, turns(2))
    rollout("revert", f"{ROOT}#8", "-y")
    rollout("revert", f"{ROOT}#4", "-y")
    assert rollout("tree").stdout.decode().rstrip().endswith("reverted to #4 (3 rollouts)")
    (found,) = objects(rollout("tree", "--json").stdout)
    assert found["rollouts"][0]["base"] is None
    assert found["rollouts"][1]["base"]["rollout"] == ROOT
    assert found["rollouts"][1]["base"]["bytes"] == path.read_bytes().index(b"\n", _begin_of(path, 8)) + 1


def _begin_of(path: Path, ordinal: int) -> int:
    return path.read_bytes().index(f'"ordinal":{ordinal},'.encode())


def test_deep_family_is_drawn_to_its_end(rollout: Run, home: Path) -> None:
    """A thousand forks of forks are no problem."""
    ids = [uuid(0x100000 + number) for number in range(1200)]
    parent = None
    for each in ids:
        forked = {} if parent is None else {"forked_from_id": parent}
        place_of(Home(home), each).write_bytes(meta(each, **forked))
        parent = each
    lines = rollout("tree").stdout.decode().splitlines()
    assert len(lines) == 1200
    assert lines[-1].strip().startswith("└─ ")


def test_ring_is_cut_and_said(rollout: Run, home: Path) -> None:
    """Threads that claim to descend from each other are each shown once."""
    write_thread(Home(home), ROOT, b"", forked_from_id=FORK)
    write_thread(Home(home), FORK, b"", forked_from_id=ROOT)
    lines = rollout("tree").stdout.decode().splitlines()
    assert lines == ["0c01  (fork of 0c02, which descends from it)", "└─ 0c02  (fork)"]


def test_home_without_threads_says_what_to_do(rollout: Run, home: Path) -> None:
    """An empty home is no mistake."""
    done = rollout("tree")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.decode() == f"rollout: no threads yet in {home}. Try: rollout record\n"
    assert rollout("tree", "abcd").returncode == ExitCode.NOT_FOUND


def test_archived_and_older_families_come_with_all(rollout: Run, home: Path) -> None:
    """By default the newest twenty with something live in them; the rest is counted."""
    for number in range(25):
        write_thread(Home(home), uuid(0xD00 + number), b"")
    archived = place_of(Home(home), uuid(0xE00), archived=True)
    archived.write_bytes(meta(uuid(0xE00)))
    done = rollout("tree")
    assert len(done.stdout.splitlines()) == 20
    assert done.stderr == b"rollout: 20 of 26 families. Try: rollout tree --all\n"
    everything = rollout("tree", "--all").stdout.decode()
    assert len(everything.splitlines()) == 26
    assert "0e00  demo 2026-03-04 05:06  archived" in everything


def test_file_that_can_not_be_read_is_named_and_hides_nothing(rollout: Run, family: Path) -> None:
    """A rollout that is none any more is left out, with a note."""
    place_of(Home(family), uuid(0xE01)).write_bytes(b"dear diary\n")
    done = rollout("tree")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 5
    assert b"is left out" in done.stderr


def test_hostile_names_are_harmless(rollout: Run, home: Path) -> None:
    """What a file says is shown without its escape sequences and line breaks."""
    write_thread(Home(home), ROOT, b"", cwd="/srv/a\x1b[31m\nb\u202e")
    shown = rollout("tree").stdout
    assert b"\x1b" not in shown
    assert len(shown.splitlines()) == 1


def test_short_forms_name_one_thread_each() -> None:
    """Where the ends are alike, or look like a beginning, more characters are shown."""
    assert ShortIds([uuid(1)])(uuid(1)) == "0001"
    alike = [uuid(0xA0001), uuid(0xB0001)]
    assert [ShortIds(alike)(each) for each in alike] == ["a0001", "b0001"]
    like_a_beginning = [uuid(0x0196), uuid(2)]
    assert ShortIds(like_a_beginning)(uuid(0x0196)) == "00196"
    assert ShortIds([])("anything") == "anything"


def test_reference_fork_reads_as_one_conversation(rollout: Run, home: Path) -> None:
    """The tree's reference child, shown, begins where its parent does."""
    path = write_thread(Home(home), ROOT, turns(1))
    base = base_of(path, ROOT, path.stat().st_size, 9)
    write_thread(Home(home), FORK, turns(1, first=2, ordinal=10), ordinal=9, history_base=base)
    texts = [
        each["text"] for each in objects(rollout("show", FORK, "--json").stdout) if each["role"] == "user"
    ]
    assert texts == ["question 1", "question 2"]
