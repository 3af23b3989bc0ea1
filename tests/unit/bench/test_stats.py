import pytest
from hypothesis import given
from hypothesis import strategies as st

from hogwild_sgl.bench.report.stats import difference, estimate, steps_to, wilson


def test_the_wilson_interval_agrees_with_values_worked_out_by_hand():
    low, high = wilson(8, 10)
    assert low == pytest.approx(0.4901625, abs=1e-6)
    assert high == pytest.approx(0.9433178, abs=1e-6)


@given(st.integers(1, 200), st.data())
def test_the_wilson_interval_holds_the_share_and_mirrors(count, data):
    successes = data.draw(st.integers(0, count))
    low, high = wilson(successes, count)
    assert 0 <= low <= successes / count <= high <= 1
    mirrored = wilson(count - successes, count)
    assert (1 - mirrored[1], 1 - mirrored[0]) == pytest.approx((low, high))


@pytest.mark.parametrize(("successes", "count"), [(1, 0), (3, 2), (-1, 5)])
def test_an_impossible_count_is_refused(successes, count):
    with pytest.raises(ValueError):
        wilson(successes, count)


def test_one_right_or_wrong_grade_per_problem_gives_wilson():
    found = estimate({str(n): [1.0 if n < 8 else 0.0] for n in range(10)})
    assert found.method == "wilson" and found.mean == 0.8 and found.count == 10
    assert (found.low, found.high) == wilson(8, 10)


def test_several_seeds_per_problem_are_averaged_within_the_problem_first():
    found = estimate({"a": [1, 1, 1, 1], "b": [0]})
    assert found.mean == 0.5 and found.count == 2 and found.method == "bootstrap"


def test_repeating_the_seeds_does_not_narrow_the_interval():
    once = estimate({str(n): [float(n % 2), 0.5] for n in range(20)})
    often = estimate({str(n): [float(n % 2), 0.5] * 10 for n in range(20)})
    assert (once.low, once.high) == (often.low, often.high)


def test_more_problems_narrow_the_bootstrap_interval():
    few = estimate({str(n): [0.2 + 0.6 * (n % 2)] for n in range(10)})
    many = estimate({str(n): [0.2 + 0.6 * (n % 2)] for n in range(1000)})
    assert many.high - many.low < (few.high - few.low) / 5
    assert many.low < 0.5 < many.high


def test_no_values_have_no_estimate():
    assert estimate({}) is None and estimate({"a": []}) is None


def test_the_steps_to_an_accuracy_lie_on_the_line_between_two_budgets():
    curve = {1024: 0.2, 2048: 0.4, 4096: 0.8}
    assert steps_to(curve, 0.6) == 3072
    assert steps_to(curve, 0.1) == 1024
    assert steps_to(curve, 0.4) == 2048
    assert steps_to(curve, 0.9) is None
    assert steps_to({}, 0.5) is None


def test_a_difference_is_paired_by_problem():
    better = {str(n): [float(n % 2)] for n in range(40)}
    baseline = {str(n): [float(n % 2) * 0.5] for n in range(40)}
    found = difference(better, baseline)
    assert found.mean == pytest.approx(0.25) and found.low > 0
    same = difference(better, better)
    assert (same.mean, same.low, same.high) == (0, 0, 0)


def test_only_common_problems_are_compared():
    found = difference({"a": [1], "b": [1]}, {"b": [0], "c": [0]})
    assert (found.mean, found.count) == (1.0, 1)
    assert difference({"a": [1]}, {"b": [1]}) is None


def test_grades_that_are_all_zero_still_have_an_interval():
    found = estimate({str(n): [0.0, 0.0] for n in range(20)})
    assert found.mean == found.low == 0.0
    assert found.high == wilson(0, 20)[1] > 0.1
