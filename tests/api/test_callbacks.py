"""Callbacks see a run as it goes, and may end it; Ctrl-C gives back what there is."""

from __future__ import annotations

import os
import signal

import pytest
import torch

import walktalk as wt
from tests.api.test_training_options import line, trained
from walktalk.api.progress import bar_html, wanted_progress
from walktalk.core.errors import UserError
from walktalk.studies import Progress

CYCLE = wt.graphs.cycle(3)


class EventLog(wt.Callback):
    """Writes down everything that it is shown."""

    def __init__(self, end_at: int | None = None) -> None:
        self.seen: list = []
        self.end_at = end_at

    def on_start(self, settings):
        self.seen.append(("start", settings["task"].get("called")))

    def on_evaluation(self, row):
        self.seen.append(("row", row["algorithm"], row["repetition"], row["iteration"], row["train_loss"]))
        return row["iteration"] == self.end_at

    def on_end(self, result):
        self.seen.append(("end", result))

    def close(self):
        self.seen.append(("close",))


def alike(one: wt.Run, other: wt.Run) -> bool:
    """The same numbers, but for the last bits: how a run is cut into stretches may change those of such a model."""
    count = min(len(one.history), len(other.history))
    pairs = [list(run.history["train_loss"])[:count] for run in (one, other)]
    return pairs[0] == pytest.approx(pairs[1], rel=1e-2, abs=1e-5)


def test_everything_is_shown_once_and_in_order():
    event_log = EventLog()
    run = trained(callbacks=[event_log])
    assert [entry[0] for entry in event_log.seen] == ["start", *["row"] * 7, "end", "close"]
    assert [entry[3:] for entry in event_log.seen[1:-2]] == list(
        run.history[["iteration", "train_loss"]].itertuples(index=False, name=None)
    )
    assert event_log.seen[-2][1] is run
    assert alike(trained(), run)  # watching changes nothing


def test_one_of_them_may_end_a_run_and_the_others_go_on():
    event_log = EventLog()

    def impatient(row):
        return row["algorithm"].startswith("async") and row["iteration"] >= 20

    result = wt.compare(
        line(),
        [wt.MultiWalk(), wt.AsyncGossip()],
        CYCLE,
        stop=60,
        evaluate=10,
        device="cpu",
        callbacks=[impatient, event_log],
    )
    ends = result.history.groupby("algorithm")["iteration"].max()
    assert dict(ends) == {"async_gossip-pairwise": 20, "multi_walk-1": 60}
    gossip = result.run("async_gossip-pairwise")
    loss = float(gossip.trainer.evaluate(gossip.row[None])[0])
    assert loss == pytest.approx(gossip.history["train_loss"].iloc[-1], rel=1e-3)
    assert [e[3] for e in event_log.seen if e[:2] == ("row", "async_gossip-pairwise")] == [0, 10, 20]


def test_a_warning_is_shown_to_them():
    class Ear(wt.Callback):
        heard: list = []  # noqa: RUF012

        def on_warning(self, words):
            self.heard.append(words)

    with pytest.warns(UserWarning, match="not a number"):
        trained(optimizer=wt.SGD(lr=1e6), callbacks=[Ear()])
    assert any("not a number; it began with a training at node" in words for words in Ear.heard)


def test_what_is_open_is_closed_after_an_error():
    class Broken(EventLog):
        def on_evaluation(self, row):
            raise ZeroDivisionError

    event_log, broken = EventLog(), Broken()
    with pytest.raises(ZeroDivisionError):
        trained(callbacks=[event_log, broken])
    assert event_log.seen[-1] == broken.seen[-1] == ("close",)


def test_in_other_processes_they_watch_but_cannot_end(tmp_path, monkeypatch):
    monkeypatch.setattr("walktalk.studies.execution.workers.fork_is_safe", lambda: True)  # they are there sooner
    event_log = EventLog()
    given = {"stop": 30, "evaluate": 10, "device": "cpu", "workers": 2}
    algorithms = [wt.MultiWalk(), wt.AsyncGossip()]
    wt.compare("quadratic", algorithms, CYCLE, out=tmp_path / "a", callbacks=event_log, **given)
    assert sorted(e[3] for e in event_log.seen if e[0] == "row") == sorted([0, 10, 20, 30] * 2)
    with pytest.raises(UserError, match="callbacks: one of them ends a run, which it can only in this process"):
        wt.compare("quadratic", algorithms, CYCLE, out=tmp_path / "b", callbacks=EventLog(end_at=10), **given)


def stopping_at(iteration: int):
    """A function that presses Ctrl-C once: a second time would end it at once."""
    left = [True]

    def press(row):
        if row["iteration"] == iteration and left:
            left.clear()
            os.kill(os.getpid(), signal.SIGINT)

    return press


def test_ctrl_c_gives_back_the_run_so_far():
    whole = trained(stop=400)
    with pytest.warns(UserWarning, match=r"stopped at iteration [\d,]+: what there is so far is given back"):
        run = trained(stop=400, callbacks=stopping_at(20))
    count = len(run.history)
    assert 3 <= count < len(whole.history)
    assert alike(run, whole)
    assert torch.isfinite(run.row).all()
    assert (run.trace["event"] == "trained").sum() >= run.history["iteration"].iloc[-1]


def test_ctrl_c_and_resume(tmp_path):
    given = {"stop": 400, "out": tmp_path / "run"}
    with pytest.warns(UserWarning, match="resume=True goes on from there"):
        trained(**given, callbacks=stopping_at(20))
    run = trained(**given, resume=True)
    assert run.history["iteration"].iloc[-1] == 400
    assert alike(run, trained(stop=400))
    algorithms = [wt.MultiWalk(), wt.AsyncGossip()]
    more = {"stop": 400, "evaluate": 10, "device": "cpu", "out": tmp_path / "study"}
    with pytest.raises(KeyboardInterrupt, match="go on with resume=True"):
        wt.compare(line(), algorithms, CYCLE, **more, callbacks=stopping_at(20))
    result = wt.compare(line(), algorithms, CYCLE, **more, resume=True)
    assert set(result.history.groupby("algorithm")["iteration"].max()) == {400}


def test_a_saved_run_is_loaded_by_plain_torch_and_gone_on_from(tmp_path):
    from safetensors.torch import load_file

    run = trained()
    folder = run.save(tmp_path / "saved")
    fresh = torch.nn.Linear(4, 1)
    fresh.load_state_dict(load_file(folder / "model.safetensors"))
    assert torch.equal(fresh.weight, run.model.weight)
    assert (folder / "history.csv").is_file()
    on = trained(init=folder, stop=10)
    assert on.history["train_loss"].iloc[0] == pytest.approx(run.history["train_loss"].iloc[-1], rel=1e-5)
    assert alike(trained(init=run.model, stop=10), on)


def test_results_in_few_words():
    run = trained()
    assert repr(run).startswith("Run(2 walks: task line, graph cycle(3), iterations 60, ")
    assert "<table>" in run._repr_html_()
    result = wt.compare(line(), [wt.AsyncGossip()], CYCLE, stop=20, device="cpu")
    assert repr(result).splitlines()[0] == "Results of compared"
    assert result._repr_html_().count("<tr>") == 2
    assert run.plot("bits").axes
    assert result.plot().axes


def test_progress_where_somebody_sees_it(capsys, monkeypatch):
    trained()
    assert capsys.readouterr().err == ""  # no terminal, nobody asked
    trained(progress=True)
    assert "60 of 60 iterations" in capsys.readouterr().err
    reports: list[Progress] = []
    trained(progress=reports.append)
    assert reports[-1].done == 60


def test_progress_in_a_notebook_needs_no_widgets(monkeypatch):
    shown: list[str] = []

    class Handle:
        def update(self, page):
            shown.append(page.data)

    def display(page, display_id):
        shown.append(page.data)
        return Handle()

    pytest.importorskip("IPython.display")
    monkeypatch.setattr("IPython.display.display", display)
    spec = trained().base.spec
    monkeypatch.setattr("walktalk.api.progress.in_notebook", lambda: True)
    with wanted_progress(None, spec) as tell:
        tell(Progress(1, 10, 1, 1.0, 8.0, {}, "training"))
        tell(Progress(10, 10, 10, 9.0, 80.0, {}, "training"))
    assert len(shown) == 2
    assert "<progress value='10' max='10'" in shown[-1]
    assert "<script" not in bar_html("<script>", Progress(1, 2, 1, 1.0, 1.0, {}, "<b>"))
