from dataclasses import replace

from headwater.replication.suspicion import Suspicion
from tests.replication.cluster_world import World

NODES = World.of(1, 2, 3).nodes


def attending() -> Suspicion:
    suspicion = Suspicion(refusals=3, silence_s=3.0)
    suspicion.attend(NODES)
    return suspicion


def test_three_refusals_in_a_row_are_suspicious_and_an_answer_clears_them() -> None:
    suspicion = attending()
    for _ in range(2):
        suspicion.refused(NODES[1])
    assert suspicion.suspected(0) == frozenset()
    suspicion.answered(NODES[1])
    for _ in range(2):
        suspicion.refused(NODES[1])
    assert suspicion.suspected(0) == frozenset()
    suspicion.refused(NODES[1])
    assert suspicion.suspected(0) == {1}
    suspicion.answered(NODES[1])
    assert suspicion.suspected(0) == frozenset()


def test_silence_is_suspicious_after_a_while() -> None:
    suspicion = attending()
    suspicion.silent(NODES[1], 10)
    suspicion.silent(NODES[1], 12)
    assert suspicion.suspected(12.9) == frozenset()
    assert suspicion.suspected(13) == {1}


def test_if_all_are_silent_the_fault_is_ours() -> None:
    suspicion = attending()
    for node in NODES.values():
        suspicion.silent(node, 0)
    assert suspicion.suspected(100) == frozenset()
    suspicion.answered(NODES[3])
    assert suspicion.suspected(100) == {1, 2}


def test_if_all_refuse_they_are_dead() -> None:
    suspicion = attending()
    for node in NODES.values():
        for _ in range(3):
            suspicion.refused(node)
    assert suspicion.suspected(0) == {1, 2, 3}


def test_who_registers_anew_starts_with_a_clean_slate_and_late_answers_count_for_nobody() -> None:
    suspicion = attending()
    for _ in range(3):
        suspicion.refused(NODES[1])
    newer = replace(NODES[1], epoch=2)
    suspicion.attend({**NODES, 1: newer})
    assert suspicion.suspected(0) == frozenset()
    for _ in range(3):
        suspicion.refused(NODES[1])
    assert suspicion.suspected(0) == frozenset()


def test_nobody_is_suspected_who_is_gone() -> None:
    suspicion = attending()
    for _ in range(3):
        suspicion.refused(NODES[1])
    suspicion.attend({2: NODES[2]})
    assert suspicion.suspected(0) == frozenset()
