"""Each piece of work has one answer, whatever ends; in lanes of this process, and in real ones."""

import os
import time
from collections import Counter
from concurrent.futures import BrokenExecutor

import pytest
from fake_lane import FakeLane

from opsmith.checks.cluster import lanes
from opsmith.checks.cluster.lanes import TRIES, Lanes, LocalLane, Lost, each_answer, versions
from opsmith.errors import LoadError


@pytest.fixture(autouse=True)
def opened():
    FakeLane.opened = []
    return FakeLane.opened


def answers(pieces, work, *, begin=lambda: None, count=3, said=None, patience=60.0):
    own = Lanes(FakeLane, count, count)
    said = [] if said is None else said
    return each_answer(
        pieces, own, (begin,), lambda piece: (work, piece), patience=patience, say=said.append
    )


def ends(*_):
    raise BrokenExecutor("killed")


def test_each_piece_has_one_answer_and_pieces_are_handed_out_in_order(opened):
    begun = []
    found = list(answers(range(50), lambda piece: begun.append(piece) or piece * 2))
    assert sorted(found) == [(piece, piece * 2) for piece in range(50)]
    assert begun == list(range(50))
    assert len(opened) == 3
    assert all(lane.ended for lane in opened)


def test_no_more_lanes_are_opened_than_there_are_pieces(opened):
    assert list(answers([1], str, count=8)) == [(1, "1")]
    assert len(opened) == 1
    assert list(answers([], str)) == []
    assert len(opened) == 1


def test_no_more_pieces_are_read_than_there_are_lanes():
    read, answered, most = [], [], 0
    found = each_answer(
        range(200),
        Lanes(FakeLane, 4, 4),
        (int,),
        lambda piece: (read.append(piece) or str, piece),
        patience=60,
        say=print,
    )
    for piece, _ in found:
        answered.append(piece)
        most = max(most, len(read) - len(answered))
    assert len(answered) == 200
    assert most <= 4


def test_a_piece_whose_process_ended_is_handed_out_again_before_others(opened):
    tries, said = Counter(), []

    def work(piece):
        tries[piece] += 1
        if piece == 4 and tries[piece] < TRIES:
            ends()
        return piece

    found = list(answers(range(30), work, said=said, count=1))
    assert found == [(piece, piece) for piece in range(30)]
    assert tries == Counter({piece: TRIES if piece == 4 else 1 for piece in range(30)})
    assert said == ["a process ended, and what it worked at begins again: killed"] * 2
    assert len(opened) == 3


def test_a_piece_that_ends_each_process_is_given_up_and_costs_no_other(opened):
    found = dict(answers(range(10), lambda piece: ends() if piece == 4 else piece))
    assert found.pop(4) == Lost("its process ended 3 times: killed")
    assert found == {piece: piece for piece in range(10) if piece != 4}
    assert len(opened) == 3 + TRIES - 1, "none begins where nothing is left"


def test_a_piece_that_was_lost_goes_to_a_process_that_has_nothing_to_do(opened):
    # If a machine is gone, another process may find no place while this one keeps its own.
    tries = Counter()

    def work(piece):
        tries[piece] += 1
        return ends() if piece == 1 and tries[piece] == 1 else piece

    assert dict(answers([0, 1], work, count=2)) == {0: 0, 1: 1}
    assert tries == {0: 1, 1: 2}
    assert len(opened) == 2


def test_a_process_that_ended_after_the_deadline_is_not_asked_again(opened):
    found = dict(answers(range(3), lambda piece: ends() if piece == 1 else piece, patience=-1.0))
    assert found[1] == Lost("its process ended after -1 s: killed")
    assert len(opened) == 3, "one that has nothing to do is there"


def test_a_process_that_ended_with_nothing_to_do_loses_no_piece(monkeypatch, opened):
    submit = FakeLane.submit

    def once(lane, function, /, *arguments):
        if arguments == (2,) and len(opened) == 3:
            ends()
        return submit(lane, function, *arguments)

    monkeypatch.setattr(FakeLane, "submit", once)
    assert sorted(answers(range(6), str)) == [(piece, str(piece)) for piece in range(6)]
    assert len(opened) == 4


def test_an_error_is_an_answer_too():
    found = dict(answers(range(4), lambda piece: 1 // piece))
    assert found == {
        0: Lost("its process raised ZeroDivisionError: integer division or modulo by zero"),
        1: 1,
        2: 0,
        3: 0,
    }


def test_a_lane_that_cannot_begin_gets_nothing_and_keeps_its_place(opened):
    said, starts = [], []

    def begin():
        starts.append(None)
        if len(starts) == 1:
            raise LookupError("this machine has no sandbox")

    found = list(answers(range(20), str, begin=begin, count=2, said=said))
    assert len(found) == 20
    assert said == ["this machine has no sandbox"]
    assert len(opened) == 2, "nothing was opened in its place"
    assert all(lane.ended for lane in opened), "it is ended at last"


def test_where_no_lane_can_begin_the_reason_is_raised(opened):
    def begin():
        raise LookupError("this machine has no sandbox")

    with pytest.raises(LookupError, match="no sandbox"):
        list(answers(range(20), str, begin=begin))
    with pytest.raises(LoadError, match="processes end while they begin: killed"):
        list(answers(range(20), str, begin=ends))
    assert len(opened) < 12, "processes that end while they start are not started for ever"
    assert all(lane.ended for lane in opened)


def test_a_machine_with_other_versions_gets_no_work(monkeypatch, opened):
    here = versions()
    given = iter([here])
    monkeypatch.setattr(lanes, "versions", lambda: next(given, {**here, "torch": "1.0"}))
    begun = []
    with pytest.raises(LoadError, match=r"gets no work: it has torch 1\.0, not ") as raised:
        list(answers(range(3), str, begin=lambda: begun.append(None), count=1))
    assert f"not {here['torch']}, so its results would be others." in str(raised.value)
    assert begun == []


def test_who_stops_asking_ends_all_lanes(opened):
    found = answers(range(20), str)
    next(found)
    found.close()
    assert all(lane.ended for lane in opened)


def gone(process: int) -> bool:
    for _ in range(200):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
def test_a_process_of_this_machine_ends_alone_and_with_its_lane():
    # A piece is a number to return, or an exit code to end with.
    def ask(piece):
        return (os._exit, 3) if piece == "exit" else (os.getpid,)

    pieces = ["a", "exit", "b", "c"]
    found = dict(
        each_answer(pieces, Lanes(LocalLane, 1, 1), (os.getpid,), ask, patience=600, say=print)
    )
    assert isinstance(found.pop("exit"), Lost)
    assert found["a"] != found["b"] == found["c"]
    lane = LocalLane()
    process = lane.submit(os.getpid).result()
    lane.submit(time.sleep, 600)
    lane.end()
    assert gone(process)
