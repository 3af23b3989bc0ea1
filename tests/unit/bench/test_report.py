import json

import pytest
from typer.testing import CliRunner

from hogwild_sgl.bench.judge.__main__ import SCORES
from hogwild_sgl.bench.report import __main__ as report
from hogwild_sgl.bench.report import plots, tables
from hogwild_sgl.bench.report.__main__ import write_report
from hogwild_sgl.bench.report.plots import applicable
from hogwild_sgl.bench.report.stats import wilson
from hogwild_sgl.bench.report.summary import summarise
from hogwild_sgl.bench.run.grid import Setting, settings_of, units_of
from hogwild_sgl.bench.run.runner import Conditions, Runner
from hogwild_sgl.bench.run.servers import Servers
from hogwild_sgl.bench.run.store import Store, read_results
from hogwild_sgl.errors import UserError
from tests.unit.bench.build import check, result, step
from tests.unit.bench.fakes import SUMS, scripted


def record(unit, values, *, setting=("team", "combined", 2), run=None, parts=None, meta=None):
    program, layout, workers = setting
    run = run or result(step(0, "Bob, see this.", 0, 10), step(1, "I do.", 0, 10))
    return {
        "unit": f"{setting} {unit}",
        "digest": "d",
        "program": program,
        "layout": layout,
        "workers": workers,
        "example": unit,
        "meta": meta or {},
        "seed": 0,
        "gold": "5",
        "scores": [
            {
                "budget": budget,
                "value": value,
                "parts": parts or [],
                "answer": "5",
                "detail": "",
                "passes": budget,
            }
            for budget, value in values.items()
        ],
        "server": "http://x",
        "result": json.loads(run.to_json()),
    }


SINGLE = ("single", None, 1)


def test_the_curve_is_the_mean_over_problems_at_each_budget():
    records = [
        record("a", {10: 0, 20: 1}),
        record("b", {10: 0, 20: 1}),
        record("c", {10: 1, 20: 1}),
    ]
    [summary] = summarise(records)
    assert summary.setting == Setting("team", "combined", 2)
    assert {b: e.mean for b, e in summary.curve.items()} == {10: pytest.approx(1 / 3), 20: 1.0}
    assert (summary.curve[10].low, summary.curve[10].high) == wilson(1, 3)


def test_costs_are_those_of_the_runs_at_the_largest_budget():
    short = result(step(0, "x", 0, 5), passes=5, kv_tokens=50, seconds=1.0, finisher_passes=1)
    long = result(step(0, "x", 0, 90), passes=90, kv_tokens=400, seconds=9.0, finisher_passes=2)
    longer = result(step(0, "x", 0, 94), passes=94, kv_tokens=600, seconds=11.0, finisher_passes=4)
    records = [
        record("a", {10: 0}, run=short),
        record("a", {100: 1}, run=long),
        record("b", {100: 1}, run=longer),
    ]
    [summary] = summarise(records)
    cost = summary.cost
    assert (cost.runs, cost.passes, cost.finisher_passes) == (2, 95.0, 3.0)
    assert (cost.kv_mean, cost.kv_peak, cost.seconds) == (500, 600, 10.0)
    assert cost.seconds_per_pass == pytest.approx(20 / 190)
    assert cost.tokens == 92


def test_parts_and_whole_tasks_are_counted_apart():
    records = [
        record("a", {10: 0.5}, parts=[1, 0]),
        record("b", {10: 1.0}, parts=[1, 1]),
    ]
    [summary] = summarise(records)
    assert summary.curve[10].mean == 0.75
    assert summary.all_right[10].mean == 0.5
    assert summary.parts == [1.0, 0.5]


def test_groups_are_formed_by_meta_fields():
    records = [
        record("a", {10: 1}, meta={"difficulty": "easy"}),
        record("b", {10: 0}, meta={"difficulty": "hard"}),
        record("c", {10: 0}, meta={"difficulty": "easy"}),
    ]
    [summary] = summarise(records)
    found = {name: e.mean for name, e in summary.groups["difficulty"].items()}
    assert found == {"easy": 0.5, "hard": 0.0}


def test_measures_are_summed_over_teams_and_left_out_for_a_single_writer():
    alone = result(step(0, "x", 0, 1, workers=("Alice",)), workers=("Alice",))
    records = [
        record("a", {10: 1}, run=result(step(0, "Bob!", 0, 9), checks=(check("yes"),))),
        record("b", {10: 1}, run=result(step(0, "Bob!", 0, 9), step(1, "So.", 0, 9))),
        record("a", {10: 1}, setting=SINGLE, run=alone),
    ]
    team, single = summarise(records)
    assert (team.measures.references, team.measures.steps, team.measures.checks_yes) == (2, 3, 1)
    assert single.measures is None


def test_only_published_curves_in_the_range_of_the_budgets_apply():
    published = {"paper": {1024: 20.0, 4096: 70.0}}
    assert applicable(published, [512, 2048]) == {"paper": {1024: 0.2, 4096: 0.7}}
    assert applicable(published, [32, 256]) == {}


@pytest.fixture
def no_plots(monkeypatch):
    """Plots are made, but not written, where a test is not about them."""

    def closed(figure, folder, name):
        plots.plt.close(figure)
        return name

    monkeypatch.setattr(plots, "_save", closed)


@pytest.fixture
def folder(tmp_path):
    programs = [scripted(), scripted(name="single", fewest=1, most=1, layouts=False)]
    settings = settings_of(programs, ["combined", "independent"], [2])
    units = units_of(programs, settings, SUMS.load(None, 12), 1, [10, 20, 40])
    notes = {"title": "Sums <b>", "published": SUMS.published, "source": "somewhere"}
    with Store(tmp_path, {"task": "sums", "server": {"model": "tiny"}}, notes) as store:
        start = {"command": "python -m bench.sums --limit 12", "runs": 40}
        store.add_start({**start, "settings": ["single", "team combined x2"]})
        Runner(SUMS, programs, Conditions(), store, Servers(["http://x"], 4)).run(units)
    return tmp_path


def test_the_report_has_the_numbers_that_follow_from_the_transcripts(folder, no_plots):
    write_report(folder)
    text = (folder / "report.md").read_text()
    # By the script of the fake program: 1 of 12 right at 10, 6 at 20, all at 40.
    expected = [wilson(right, 12) for right in (1, 6, 12)]
    cells = [
        f"{100 * right / 12:.1f} ({100 * low:.1f}–{100 * high:.1f})"
        for right, (low, high) in zip((1, 6, 12), expected, strict=True)
    ]
    assert f"| team combined x2 | 12 | {' | '.join(cells)} |" in text
    assert "| team combined x2 | 10 | 13 | 15 | 18 | 20 | 24 | 28 | 32 | 36 |" in text
    assert "| published: paper | ≤ 10 | ≤ 10 | 15 | 20 | 25 | 30 | 35 | 40 |  |" in text
    assert "36 of 40 runs are done" in text
    assert "python -m bench.sums --limit 12" in text
    assert "| team independent x2 | 0.0 (0.0–0.0) |" in text  # paired with the single writer


def test_every_accuracy_in_the_report_can_be_recomputed_from_the_results_file(folder, no_plots):
    write_report(folder)
    right, count = {}, {}
    for line in read_results(folder):
        last = line["scores"][-1]
        label = line["program"]
        gold = str(2 * int(line["result"]["problem"].split()[2]))
        right[label] = right.get(label, 0) + (last["answer"] == gold)
        count[label] = count.get(label, 0) + 1
    assert right["single"] / count["single"] == 1.0
    assert "| single | 12 |" in (folder / "report.md").read_text()


def test_the_page_needs_no_other_file_and_shows_the_plots(folder):
    page = write_report(folder).read_text()
    assert page.count("<svg") == 2 and "<img" not in page
    assert "<table>" in page and "team combined x2" in page
    for name in ("accuracy.png", "accuracy.svg", "collaboration.png", "collaboration.svg"):
        assert (folder / name).stat().st_size > 1000


def test_text_of_a_model_cannot_put_markup_into_the_report(folder, no_plots):
    line = next(read_results(folder))
    line["unit"], line["scores"][0]["answer"] = "u", "<script>alert(1)</script> | x"
    with open(folder / "results.jsonl", "w") as file:
        file.write(json.dumps(line) + "\n")
    page = write_report(folder).read_text()
    assert "<script>" not in page and "&lt;script&gt;" in page
    assert "Sums &lt;b&gt;" in page


def test_a_judged_run_shows_the_scores(folder, no_plots):
    unit = next(read_results(folder))["unit"]
    score = {"unit": unit, "key": "k", "rubric": "collaboration", "version": 1}
    score |= {"model": "m", "score": 4, "reasons": "r"}
    (folder / SCORES).write_text(json.dumps(score) + "\n")
    write_report(folder)
    text = (folder / "report.md").read_text()
    assert "collaboration v1, m" in text and "4.00 (1)" in text


def test_open_questions_are_reported_without_an_accuracy(tmp_path, no_plots):
    with Store(tmp_path, {"task": "free_text"}) as store:
        store.add(record("a", {10: None}))
    write_report(tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "no right answers" in text and "## Collaboration" in text
    assert not (tmp_path / "accuracy.png").exists()


def test_failed_runs_are_told_until_they_succeed(tmp_path, no_plots):
    with Store(tmp_path, {"task": "sums"}) as store:
        store.add(record("a", {10: 1}))
        store.add_failure({"unit": "b", "error": "x"})
    write_report(tmp_path)
    assert "**1 runs failed**" in (tmp_path / "report.md").read_text()
    with Store(tmp_path, {"task": "sums"}) as store:
        store.add({**record("b", {10: 1}), "unit": "b"})
    write_report(tmp_path)
    assert "runs failed" not in (tmp_path / "report.md").read_text()


def test_an_empty_run_has_no_report(tmp_path):
    Store(tmp_path, {}).close()
    with pytest.raises(UserError, match="no results yet"):
        write_report(tmp_path)


def test_the_command_writes_the_report_and_names_a_folder_that_is_no_run(
    folder, tmp_path, no_plots
):
    outcome = CliRunner().invoke(report.app, [str(folder), "--target", "0.5"])
    assert outcome.exit_code == 0 and "report.html" in outcome.output
    assert "| program | 50% |" in (folder / "report.md").read_text()
    assert CliRunner().invoke(report.app, [str(tmp_path / "nothing")]).exit_code == 1


@pytest.mark.parametrize("text", ["a|b", "a\nb", "**x**", "<b>", "$x_1$", "`x`", "[x](y)", "&amp;"])
def test_a_cell_shows_its_text_as_it_is(text):
    shown = tables.table(["h"], [[tables.escape(text)]])
    html = report.to_html(shown, report.Path("/nonexistent"), "t")
    cell = html.split("<td>")[1].split("</td>")[0]
    for raw, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(raw, safe)
    assert cell == " ".join(text.split())
