"""Who wins: the target that both families reached, the cost of each, and when it may be luck."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from typer.testing import CliRunner

from walktalk.cli.app import app
from walktalk.core.errors import StudyError
from walktalk.records import COLUMNS
from walktalk.reproduction.paper.drawing import who_wins


def history(pace: dict[str, tuple[float, ...]], ends: dict[str, float]) -> pd.DataFrame:
    """Losses that fall in a straight line from 2 to an end within 100 iterations; a repetition for every pace, in
    seconds an iteration."""
    rows = []
    for label, paces in pace.items():
        for repetition, seconds in enumerate(paces):
            for iteration in range(0, 101, 10):
                loss = 2.0 - (2.0 - ends[label]) * iteration / 100
                rows.append(
                    {
                        "algorithm": label,
                        "repetition": repetition,
                        "iteration": iteration,
                        "time": seconds * iteration,
                        "bits": 8 * iteration,
                        "train_loss": loss,
                    }
                )
    return pd.DataFrame(rows).reindex(columns=list(COLUMNS), fill_value=0)


PACE = {"multi_walk-1": (1.0, 1.1), "multi_walk-4": (0.3, 0.3), "async_gossip-pairwise": (0.05, 0.06)}
ENDS = {"multi_walk-1": 0.5, "multi_walk-4": 1.4, "async_gossip-pairwise": 1.0}


def test_a_family_of_which_all_diverged_is_named(tmp_path):
    broken = history(PACE, ENDS)
    broken.loc[(broken["algorithm"] == "async_gossip-pairwise") & (broken["repetition"] == 1), "train_loss"] = math.nan
    broken.to_csv(tmp_path / "cycle.csv", index=False)
    with pytest.raises(StudyError, match="in every algorithm of gossip some run diverged"):
        who_wins.history_of_both(tmp_path / "cycle.csv")


def test_verdicts():
    iteration, time, bits = who_wins.verdicts(history(PACE, ENDS), 1.0, "cycle")
    assert iteration.setting == (
        1.0,
        "cycle",
        "iteration",
        1.0,
    )  # gossip's end: what the better of both families reached
    assert iteration.winner == "multi_walk-1"
    assert iteration.ratio == pytest.approx(100 / (100 / 1.5))
    assert time.winner == "async_gossip-pairwise"
    assert time.ratio == pytest.approx((100 * 0.055) / (100 / 1.5 * 1.05))
    assert bits.winner == "multi_walk-1"
    assert time.chance() > 0.99
    noisy = history({**PACE, "async_gossip-pairwise": (0.05, 1.2)}, ENDS)
    assert who_wins.verdicts(noisy, 1.0, "cycle")[1].chance() < 0.975  # two repetitions so far apart prove nothing


def test_verdicts_that_are_read_together_are_corrected():
    one = who_wins.Verdict((1.0, "cycle", "time", 1.0), "multi_walk-1", 1.4, [1.0, 1.1, 0.9], [1.4, 1.5, 1.3])
    assert who_wins.read_together([one])["clear"].tolist() == [True]
    assert not who_wins.read_together([one] * 30)["clear"].any()


def test_the_command(tmp_path):
    folder = tmp_path / "alpha-1"
    folder.mkdir()
    history(PACE, ENDS).to_csv(folder / "cycle.csv", index=False)
    result = CliRunner().invoke(app, ["paper", "phase", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert len(pd.read_csv(tmp_path / "phase.csv")) == 3
    assert (tmp_path / "phase.png").stat().st_size > 10_000


def phase(*given) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["paper", "phase", *map(str, given)])
    return result.exit_code, result.stderr


def test_the_advisors_words_that_are_there(tmp_path, monkeypatch):
    """They are found in DIR and in --out; pilots are begun with --advise only; damage is one line."""
    monkeypatch.setattr(who_wins, "word", lambda *question: pytest.fail("pilots were begun"))
    (tmp_path / "alpha-1").mkdir()
    history(PACE, ENDS).to_csv(tmp_path / "alpha-1" / "cycle.csv", index=False)
    drawn = []
    monkeypatch.setattr(who_wins, "diagram", lambda rows, real=who_wins.diagram: drawn.append(list(rows)) or real(rows))
    words = who_wins.measured(tmp_path).assign(winner="multi_walk-2", ratio=1.5, clear=True)
    words.to_csv(tmp_path / "advisor.csv", index=False)
    assert phase(tmp_path) == (0, "")
    assert phase(tmp_path, "--out", tmp_path / "there") == (0, "")
    assert drawn == [["Measured", "Advisor"]] * 2
    assert pd.read_csv(tmp_path / "there" / "advisor.csv").equals(pd.read_csv(tmp_path / "advisor.csv"))
    words[1:].to_csv(tmp_path / "advisor.csv", index=False)
    code, said = phase(tmp_path)
    assert (code, drawn[-1]) == (0, ["Measured"])
    assert "1 of 3 settings, each with its loss to reach, are not in" in said
    assert "--advise asks" in said
    for damaged in ("", "nothing\n", ",".join(who_wins.COLUMNS) + "\n1.0,cycle,time,x,multi_walk-2,1.5,True\n"):
        (tmp_path / "advisor.csv").write_text(damaged)
        for more in ((), ("--advise",), ("--out", tmp_path / "new")):
            code, said = phase(tmp_path, *more)
            assert code == 2
            assert "advisor.csv is damaged; delete it" in said
    assert not (tmp_path / "new").exists()


def test_runs_of_the_paper_command(tmp_path):
    for name in ("cycle-alpha0.1", "erdos_renyi-alpha10", "erdos_renyi-alpha0.1"):
        folder = tmp_path / "fig5-7" / name
        folder.mkdir(parents=True)
        history(PACE, ENDS).to_csv(folder / "history.csv", index=False)
        (folder / "spec.yaml").write_text("task: {name: digits}")
    for folder in (tmp_path, tmp_path / "fig5-7"):
        found = who_wins.measured(folder)
        assert set(zip(found["alpha"], found["topology"], strict=True)) == {
            (0.1, "cycle"),
            (10.0, "erdos_renyi"),
            (0.1, "erdos_renyi"),
        }
        assert who_wins.model_bytes(folder) is None  # the pilots' own
        assert phase(folder, "--out", tmp_path / "out") == (0, "")
    assert who_wins.model_bytes(tmp_path / "nowhere") == who_wins.MODEL_BYTES


def test_the_advisors_word_is_asked_for_once(tmp_path, monkeypatch):
    asked = []

    def word(*question):
        asked.append(question)
        return "multi_walk-2", 1.5, True

    monkeypatch.setattr(who_wins, "word", word)
    found = who_wins.read_together(who_wins.verdicts(history(PACE, ENDS), 0.1, "complete"))
    for _ in range(2):
        said = who_wins.predicted(found, tmp_path / "advisor.csv")
        assert list(said["winner"]) == ["multi_walk-2"] * 3
    assert len(asked) == 3
    figure = who_wins.diagram({"Measured": found, "Advisor": said})
    assert any("R=2" in text.get_text() for axes in figure.axes for text in axes.texts)


def test_folders_without_runs(tmp_path):
    with pytest.raises(StudyError, match="has no runs"):
        who_wins.measured(tmp_path)
    (tmp_path / "alpha-1").mkdir()
    (tmp_path / "alpha-1" / "torus.csv").write_text("algorithm\n")
    with pytest.raises(StudyError, match="not named after a topology"):
        who_wins.measured(tmp_path)
