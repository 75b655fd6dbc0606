"""Adapters over real peers: the page's own files and command, and only the adapters on the wire."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from walktalk.learning import Trainer
from walktalk.records import read_history, read_trace
from walktalk.runtimes.peers.identity.handshake import differences, facts_of

PAGE = Path(__file__).parents[2] / "docs" / "adapters.md"


def test_nodes_with_another_base_do_not_fit():
    here, there = (facts_of({}, torch.zeros(3), frozen) for frozen in ((10.0, 2.0, 0.5), (10.0, 2.5, 0.5)))
    assert differences(here, here) == []
    assert len(differences(here, there)) == 1
    assert "frozen weights" in differences(here, there)[0]


@pytest.mark.slow
def test_the_page_runs_as_it_stands(tmp_path):
    text = PAGE.read_text()
    code = next(block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "class Reader" in block)
    study = next(block for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "name: reader" in block)
    (tmp_path / "reader.py").write_text(code)
    (tmp_path / "reader.yaml").write_text(study)
    words = re.search(r"`walktalk (run reader.yaml [^`]*)`", text)
    assert words is not None
    command = [sys.executable, "-m", "walktalk", *words[1].split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ})
    assert done.returncode == 0, done.stdout + done.stderr
    run = tmp_path / "out" / "reader" / "runs" / "multi_walk-2" / "0"
    whole = load_file(run / "model.safetensors")
    numbers, trained = sum(t.numel() for t in whole.values()), 2 * 2 * 4 * 64 + 650
    assert f"{numbers:,} numbers, of which {trained:,} train" in text
    trace = read_trace(run / "trace.parquet")
    sent = trace[(trace.event == "send") & (trace.slot != "")]
    assert len(sent) > 20
    assert (sent.bytes - 4 * trained).between(0, 1000).all()  # the adapters, and a few words
    history = read_history(tmp_path / "out" / "reader" / "history.csv")
    assert history.train_loss.iloc[-1] < 0.8 * history.train_loss.iloc[0]


def test_of_the_small_model_of_figure_8_adapters_alone_travel(tmp_path, monkeypatch):
    """results/2026-11-16-adapters-peers: the base stays at the nodes, each of which has one kind of hands."""
    monkeypatch.syspath_prepend(str(PAGE.parents[1] / "results" / "2026-11-16-adapters-peers"))
    import adapters_peers as script

    torch.manual_seed(0)
    save_file(script.DigitReader(script.WIDE).state_dict(), tmp_path / "base.safetensors")
    task = script.handwriting(10, base=str(tmp_path / "base.safetensors"), rank=4)
    wide = script.WIDE
    factors = 2 * 2 * 4 * 2 * wide + 2 * 2 * 4 * 3 * wide  # two blocks: queries and values, up and down
    assert Trainer(task).payload_bytes == 4 * factors
    images, labels = script.digits()
    known = {kind: {bytes(image.numpy()) for image in script.written(images, kind)} for kind in script.KINDS}
    for part in task.parts:
        kinds = [kind for kind, seen in known.items() if all(bytes(task.inputs[k].numpy()) in seen for k in part[:20])]
        assert len(kinds) == 1
    assert sum(map(len, task.parts)) + script.HELD_OUT == len(labels)
