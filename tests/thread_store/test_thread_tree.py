"""The tree of threads, from the first lines of their rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import RolloutUnreadable
from tests.thread_store.histories import meta, place_of, turns, uuid, write_thread
from thread_store.chain.fork_point import ForkPoint
from thread_store.chain.thread_tree import ThreadNode, build_tree, find_references
from thread_store.forks.fork import make_fork
from thread_store.forks.revert import make_revert
from thread_store.home import Home

A, B, C, D, E = (uuid(number) for number in range(0xA, 0xF))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def shape(nodes: list[ThreadNode]) -> list[Any]:
    """Ids and relations, nested."""
    return [(each.thread_id, each.relation, shape(each.children)) for each in nodes]


def spawned(parent_id: str, **keys: Any) -> dict[str, Any]:
    spawn = {"parent_thread_id": parent_id, "depth": 1, **keys}
    return {"source": {"subagent": {"thread_spawn": spawn}}}


def test_home_that_is_not_there_is_an_empty_tree(home: Home) -> None:
    """Nothing was recorded yet."""
    tree = build_tree(home)
    assert (tree.roots, tree.orphans, tree.unreadable) == ([], [], [])


def test_forks_and_sub_agents_stand_below_their_parents(home: Home) -> None:
    """With where a fork left; a sub-agent that began as a fork is a sub-agent."""
    source = write_thread(home, A, turns(2))
    make_fork(source, place_of(home, B), thread_id=B, home=home, point=ForkPoint.turn(1))
    write_thread(home, C, b"", **spawned(A))
    write_thread(
        home, D, b"", parent_thread_id=C, forked_from_id=C, agent_nickname="Ada", agent_role="tester"
    )
    tree = build_tree(home)
    assert shape(tree.roots) == [
        (A, "root", [(B, "fork", []), (C, "subagent", [(D, "subagent", [])])]),
    ]
    assert tree.nodes[B].at == 9
    assert tree.nodes[C].at is None
    assert (tree.nodes[D].meta.agent_nickname, tree.nodes[D].meta.agent_role) == ("Ada", "tester")
    assert [each.thread_id for each in tree.roots[0].walk()] == [A, B, C, D]
    assert [each.thread_id for each in tree.subagents_of(A)] == [C, D]
    assert tree.subagents_of(B) == []


def test_reverts_are_rollouts_of_one_thread(home: Home) -> None:
    """Oldest first, each with what it rests on; an archived one counts as older than a live one."""
    first = write_thread(home, A, turns(2))
    second = make_revert(first, home=home, point=ForkPoint.turn(1))
    third = make_revert(second.path, home=home, point=ForkPoint.turn(0))
    first.rename(place_of(home, A, archived=True))
    tree = build_tree(home)
    node = tree.nodes[A]
    assert [each.rollout_id for each in node.rollouts] == [A, second.rollout_id, third.rollout_id]
    assert [each.archived for each in node.rollouts] == [True, False, False]
    assert [each.base for each in node.rollouts] == [None, second.base, third.base]
    assert node.path == third.path
    assert shape(tree.roots) == [(A, "root", [])]


def test_thread_whose_parent_is_gone_is_an_orphan(home: Home) -> None:
    """It stands on top, and says why."""
    write_thread(home, B, b"", forked_from_id=A)
    write_thread(home, C, b"", forked_from_id=B)
    tree = build_tree(home)
    assert tree.roots == []
    assert shape(tree.orphans) == [(B, "fork", [(C, "fork", [])])]
    assert (tree.orphans[0].orphan, tree.orphans[0].parent_id) == ("gone", A)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_ring_is_cut_at_its_least_id(home: Home, size: int) -> None:
    """Damaged metas may claim anything; threads that hang on the ring stay on it."""
    ids = [A, B, C][:size]
    for at, thread_id in enumerate(ids):
        write_thread(home, thread_id, b"", forked_from_id=ids[at - 1])
    write_thread(home, D, b"", forked_from_id=ids[-1])
    tree = build_tree(home)
    assert [each.thread_id for each in tree.orphans] == [A]
    assert tree.orphans[0].orphan == "ring"
    assert sorted(each.thread_id for each in tree.orphans[0].walk()) == sorted([*ids, D])


@given(st.lists(st.integers(0, 7), min_size=1, max_size=7))
def test_every_thread_is_in_the_tree_once(
    tmp_path_factory: pytest.TempPathFactory, parents: list[int]
) -> None:
    """Whatever the metas claim of their parents."""
    home = Home(tmp_path_factory.mktemp("home"))
    for number, parent in enumerate(parents):
        write_thread(home, uuid(number), b"", forked_from_id=uuid(parent))
    tree = build_tree(home)
    seen = [node.thread_id for top in (*tree.roots, *tree.orphans) for node in top.walk()]
    assert sorted(seen) == [uuid(number) for number in range(len(parents))]


def test_odd_files_do_not_hide_the_others(home: Home) -> None:
    """What is no rollout is named; a meta of wrong types counts as far as it can be read."""
    write_thread(home, A, b"")
    place_of(home, B).write_bytes(b"")
    place_of(home, C).write_bytes(
        meta(C, forked_from_id=7, parent_thread_id=["x"], history_base="?", source=3)
    )
    tree = build_tree(home)
    assert shape(tree.roots) == [(A, "root", []), (C, "root", [])]
    assert [each.path for each in tree.unreadable] == [str(place_of(home, B))]


# References


def test_references_to_a_file_are_found_by_its_rollout_id(home: Home) -> None:
    """Forks by reference and reverts rest on it directly; copies and grandchildren don't."""
    source = write_thread(home, A, turns(2))
    child = make_fork(source, place_of(home, B), thread_id=B, home=home, mode="reference")
    with open(child.path, "ab") as file:
        file.write(turns(1, ordinal=20))
    make_fork(child.path, place_of(home, C), thread_id=C, home=home, mode="reference")
    make_fork(source, place_of(home, D), thread_id=D, home=home)
    reverted = make_revert(source, home=home, point=ForkPoint.turn(1))
    found = {each.path: each for each in find_references(home, A.upper())}
    assert set(found) == {child.path, reverted.path}
    assert found[child.path].base == child.base
    assert (found[reverted.path].thread_id, found[reverted.path].rollout_id) == (A, reverted.rollout_id)
    assert [each.thread_id for each in find_references(home, B)] == [C]
    assert find_references(home, C) == []


def test_files_without_a_meta_refer_to_nothing(home: Home) -> None:
    """An empty file or one without a header must not keep everything else from being deleted."""
    write_thread(home, A, b"")
    place_of(home, B).write_bytes(b"")
    place_of(home, C).write_bytes(turns(1))
    assert find_references(home, A) == []


def test_file_that_can_not_be_read_leaves_the_question_open(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then nobody may say that nothing refers to it."""
    write_thread(home, A, b"")

    def refuse(source: object) -> None:
        raise RolloutUnreadable(path=str(source), cause=PermissionError(13, "no"))

    monkeypatch.setattr("thread_store.chain.thread_tree.require_rollout", refuse)
    with pytest.raises(RolloutUnreadable):
        find_references(home, A)
