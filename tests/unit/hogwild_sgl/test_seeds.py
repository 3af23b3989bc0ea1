import random
import string
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hogwild_sgl.seeds import derive, sampling_seed, stream

UNITS = 16
PER_UNIT = 6250  # 16 units, 100,000 strings
ALPHABET = string.ascii_letters + string.digits

part = st.one_of(st.integers(), st.text())
path = st.lists(part, max_size=5)


def write_strings(master: int, order: list[int]) -> dict[int, list[str]]:
    """Each unit's strings, the units running as threads started in the given order."""
    written: dict[int, list[str]] = {}
    gate = threading.Barrier(UNITS)

    def unit(number: int) -> None:
        own = stream(master, "unit", number)
        gate.wait()
        written[number] = ["".join(own.choices(ALPHABET, k=16)) for _ in range(PER_UNIT)]

    threads = [threading.Thread(target=unit, args=(number,)) for number in order]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return written


def test_sixteen_concurrent_units_write_100000_strings_without_a_duplicate_and_the_same_again():
    first = write_strings(2025, list(range(UNITS)))
    everything = [text for texts in first.values() for text in texts]
    assert len(everything) == 100_000
    assert len(set(everything)) == 100_000
    assert write_strings(2025, list(reversed(range(UNITS)))) == first


def test_another_master_seed_gives_other_strings():
    first = write_strings(1, list(range(UNITS)))
    other = write_strings(2, list(range(UNITS)))
    assert not {t for ts in first.values() for t in ts} & {t for ts in other.values() for t in ts}


def test_a_stream_does_not_move_when_others_are_drawn_from():
    alone = [stream(5, "team", 1).random() for _ in range(1)] + [stream(5, "team", 1).random()]
    assert alone[0] == alone[1]
    own, neighbour = stream(5, "team", 1), stream(5, "team", 2)
    mixed = []
    for _ in range(50):
        mixed.append(own.random())
        neighbour.random()
        random.random()
    again = stream(5, "team", 1)
    assert mixed == [again.random() for _ in range(50)]


def test_every_worker_and_step_of_every_team_has_its_own_seed():
    seeds = {
        derive(0, "team", team, "worker", worker, "step", step)
        for team in range(20)
        for worker in range(16)
        for step in range(60)
    }
    assert len(seeds) == 20 * 16 * 60


@given(st.integers(), path, path)
def test_different_paths_have_different_seeds(master, one, other):
    assert (derive(master, *one) == derive(master, *other)) == (
        [(type(p), p) for p in one] == [(type(p), p) for p in other]
    )


@given(st.integers(), path)
def test_a_seed_fits_64_bits_and_a_sampling_seed_63(master, names):
    assert 0 <= derive(master, *names) < 2**64
    assert sampling_seed(master, *names) == derive(master, *names) // 2 < 2**63


def test_numbers_and_their_texts_and_joined_texts_are_kept_apart():
    seeds = [derive(1), derive(1, 1), derive(1, "1"), derive(1, "ab", "c"), derive(1, "a", "bc")]
    assert len(set(seeds)) == len(seeds)


def test_the_derivation_never_changes():
    # Written down once, so that a transcript's master seed means the same in every version.
    assert derive(2025, "team", 3, "worker", 0) == 1082391184529960094


@pytest.mark.parametrize("bad", [1.5, None, b"x", True, ("a",)])
def test_parts_that_are_no_number_or_text_are_refused(bad):
    with pytest.raises(TypeError, match="integers and texts"):
        derive(1, "team", bad)


@pytest.mark.parametrize("bad", ["7", 1.0, None, False])
def test_a_master_seed_that_is_no_integer_is_refused(bad):
    with pytest.raises(TypeError, match="master seed"):
        derive(bad, "team")


def test_a_lone_surrogate_in_a_name_is_no_error():
    assert derive(1, "\udcff") != derive(1, "?")
