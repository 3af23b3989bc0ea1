"""sgl.select by a worker and by the finisher."""

from __future__ import annotations

import pytest
import sglang as sgl
from sglang.lang.choices import greedy_token_selection, unconditional_likelihood_normalized

from tests.unit.hogwild_sgl.programs import run


def test_select_scores_the_choices_in_the_workers_view(server):
    def body(s, team):
        team[0] += "The colour is" + sgl.select("c", [" red", " blue", " very green"])
        assert team[0]["c"] == " blue"
        assert team[0].text() == "Prompt.The colour is blue"
        assert team.snapshot().steps == ()
        team[0] += ", I think." + sgl.gen("why", max_tokens=3)
        team.sync()
        return team.snapshot().steps[0].text

    assert run(server, body).ret_value.startswith("The colour is blue, I think.")
    readers = [b for b in server.bodies("/steps") if b["reader"]]
    assert len(readers) == 3
    assert all(b["worker"] == 0 and b["return_logprob"] for b in readers)


@pytest.mark.parametrize("method", [greedy_token_selection, unconditional_likelihood_normalized])
def test_select_takes_sglangs_other_methods(server, method):
    def body(s, team):
        team[0] += "So"
        team[0] += sgl.select("c", [" yes", " perhaps not"], choices_method=method)
        return team[0]["c"], team[0].get_meta_info("c")

    chosen, meta = run(server, body).ret_value
    assert chosen == " yes"
    assert [len(entries) for entries in meta["input_token_logprobs"]] == [1, 2]


def test_select_before_any_text_is_an_error_with_the_remedy(server):
    def body(s, team):
        with pytest.warns(UserWarning):
            team[0] += sgl.select("c", ["yes", "no"])
            return str(team[0].error())

    assert "append some text first" in run(server, body).ret_value


def test_a_finisher_can_select(server):
    def body(s, team):
        s += team.finish("Done?") + sgl.select("done", [" yes", " no"])
        return s["done"]

    assert run(server, body).ret_value == " yes"
