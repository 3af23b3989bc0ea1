import pytest

from hogwild_sgl.bench.report.measures import corrections, measure
from hogwild_sgl.bench.report.overlap import redundancy
from hogwild_sgl.bench.report.phrases import mentions, sentences, tokens
from tests.unit.bench.build import check, result, step

LONG = "we first take the sum of all even numbers below ten and get twenty"


def test_names_of_others_and_words_for_them_are_references_the_own_name_is_not():
    found = measure(
        result(
            step(0, "Alice here. Bob, take the second part. As Bob said.", 0, 10),
            step(1, "I take it from my partner.", 0, 12),
            step(1, "Bobsled is no name.", 13, 15),
        )
    )
    assert found.references == 3
    assert (found.steps, found.referring_steps) == (3, 2)
    assert found.references_per_step == 1.0
    assert found.referring_share == pytest.approx(2 / 3)


def test_what_was_fed_is_not_counted():
    found = measure(result(step(0, "The sum is 5.", 0, 5, fed="**Bob [1]:** my partner ")))
    assert found.references == 0


def test_a_lone_worker_has_nobody_to_refer_to():
    alone = result(step(0, "The others left.", 0, 5, workers=("Solo",)), workers=("Solo",))
    assert measure(alone).references == 0


def test_a_name_next_to_a_chinese_character_is_found():
    assert mentions("请Bob检查", ["Alice", "Bob"]) == ["Bob"]


def test_repeating_what_another_had_finished_is_redundant():
    overlap = redundancy(result(step(0, LONG, 0, 20), step(1, LONG, 20, 40)))
    words = len(tokens(LONG))
    assert overlap == {0: (0, words - 4), 1: (words - 4, words - 4)}


def test_writing_the_same_at_the_same_time_is_not_repeating():
    overlap = redundancy(result(step(0, LONG, 0, 20), step(1, LONG, 0, 20)))
    assert [part for part, _ in overlap.values()] == [0, 0]


def test_only_what_the_other_had_written_by_then_counts():
    # Bob begins when Alice is half way, and writes the same text at the same speed.
    overlap = redundancy(result(step(0, LONG, 0, 20), step(1, LONG, 10, 30)))
    assert overlap[1][0] == overlap[1][1]
    # Here Bob is ahead of Alice from the middle on: he writes twice as fast.
    fast = redundancy(result(step(0, LONG, 0, 40), step(1, LONG, 10, 24)))
    bob = next(value for at, value in fast.items() if value[0] and at == 0)
    assert 0 < bob[0] < bob[1]


def test_quoting_the_problem_or_oneself_is_not_redundant():
    quoted = redundancy(result(step(0, LONG, 0, 20), step(1, LONG, 20, 40), problem=LONG))
    assert all(part == 0 for part, _ in quoted.values())
    own = redundancy(
        result(step(0, LONG, 0, 10), step(1, LONG, 0, 9), step(0, LONG, 20, 30, number=2))
    )
    last = max(own)
    assert own[last][0] == 0


def test_a_dropped_step_was_written_by_nobody():
    overlap = redundancy(result(step(0, LONG, 0, 10, kind="dropped"), step(1, LONG, 20, 40)))
    assert overlap == {1: (0, len(tokens(LONG)) - 4)}


def test_a_correction_that_nobody_disputes_stands():
    run = result(
        step(0, "So 7 times 8 is 54.", 0, 10),
        step(1, "Alice, 7 times 8 is wrong, it should be 56.", 10, 20),
        step(0, "Thanks Bob, then the total is 60.", 20, 30, number=2),
    )
    [found] = corrections(run)
    assert (found.by, found.of, found.stands) == (1, 0, True)
    assert measure(run).corrections == measure(run).standing == 1


@pytest.mark.parametrize(
    "reply", ["No, I was right: it is 54.", "Bob, your step is wrong, not mine.", "I stand by it."]
)
def test_a_correction_that_is_disputed_does_not_stand(reply):
    run = result(
        step(0, "So 7 times 8 is 54.", 0, 10),
        step(1, "Alice, that is a mistake.", 10, 20),
        step(0, reply, 20, 30, number=2),
    )
    assert [c.stands for c in corrections(run) if c.by == 1] == [False]


def test_a_correction_that_its_author_takes_back_does_not_stand():
    run = result(
        step(0, "So 7 times 8 is 56.", 0, 10),
        step(1, "Alice, that is a mistake.", 10, 20),
        step(1, "Sorry, Alice was right.", 20, 30, number=2),
    )
    assert [c.stands for c in corrections(run)] == [False]


def test_finding_an_error_of_ones_own_is_no_correction_of_another():
    run = result(step(0, "It is 54.", 0, 10), step(1, "I made a mistake above.", 10, 20))
    assert corrections(run) == []


def test_a_claim_cannot_be_corrected_before_it_is_begun():
    run = result(step(1, "Alice will be wrong.", 0, 10), step(0, "It is 54.", 20, 30))
    assert corrections(run) == []


def test_chinese_corrections_are_found():
    run = result(step(0, "7乘8等于54。", 0, 10), step(1, "Alice,这里不对,应该是56。", 10, 20))
    assert len(corrections(run)) == 1


def test_answers_to_checks_are_counted():
    run = result(step(0, "x", 0, 1), checks=(check("yes"), check("no"), check("no")))
    found = measure(run)
    assert (found.checks_yes, found.checks_no, found.checks_unclear) == (1, 2, 0)


def test_waiting_is_idle_text_and_working_is_not():
    idle = measure(result(step(0, "I'll wait for Bob. There is nothing left for me to do.", 0, 9)))
    assert idle.idle_share == 1.0
    busy = measure(result(step(0, "The waiting time of the bus is 5 minutes.", 0, 9)))
    assert busy.idle_share == 0.0


def test_a_sentence_that_a_worker_writes_again_is_repeated():
    run = result(
        step(0, f"{LONG}.", 0, 9),
        step(0, f"{LONG}. Done.", 10, 19, number=2),
        step(1, "Done.", 0, 3),
    )
    found = measure(run)
    assert found.repeated_words == len(tokens(f"{LONG}."))


def test_an_empty_run_has_zero_shares():
    found = measure(result())
    assert found.references_per_step == found.redundant_share == found.idle_share == 0.0


def test_a_decimal_point_ends_no_sentence():
    assert sentences("It is 3.14 long. Good!") == ["It is 3.14 long.", "Good!"]


def test_repeating_a_voice_from_outside_is_redundant():
    hint = step(None, "", 5, 5, kind="said", fed=LONG)
    overlap = redundancy(result(hint, step(1, LONG, 20, 40)))
    assert overlap == {1: (len(tokens(LONG)) - 4, len(tokens(LONG)) - 4)}
