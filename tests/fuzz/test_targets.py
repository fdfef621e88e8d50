"""Every target of the fuzzer on its seeds, and on what comes of them by chance: the fuzzer itself is `make fuzz`."""

import random

import pytest

from tests.fuzz.targets import SEEDS, TARGETS, Target
from tests.support.effort import amount

MUTANTS = amount(5_000, 300)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_what_is_refused_is_refused_as_declared(target: Target) -> None:
    for seed in SEEDS[target]:
        target(seed)
    for number in range(MUTANTS):
        target(mutant(random.Random(number), SEEDS[target]))


def mutant(chance: random.Random, seeds: tuple[bytes, ...]) -> bytes:
    """A seed with a few bytes altered, left out, doubled, or put in from another."""
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, 6)):
        at = chance.randint(0, len(data))
        match chance.randint(0, 4):
            case 0:
                data[at : at + 1] = bytes([chance.randint(0, 255)])
            case 1:
                del data[at : at + chance.randint(1, 8)]
            case 2:
                data[at:at] = data[at : at + chance.randint(1, 64)] * chance.randint(1, 4)
            case 3:
                other = chance.choice(seeds)
                data[at:at] = other[chance.randint(0, len(other)) :][:64]
            case _:
                data[at:at] = chance.choice([b"\0", b"\xff" * 4, b'"', b"\\", b",", b"=", b"\xed\xa0\x80", b"1e999"])
    return bytes(data)
