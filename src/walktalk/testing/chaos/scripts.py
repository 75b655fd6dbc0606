"""Scripts of their own as the trainers of a round's nodes (`wt.site`): each a process that is killed and comes again.

A script trains as our own trainer does, with the key of its visit: so the trace can be done again, and judged, as
where nodes train by themselves.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from walktalk.api import Visit, site
from walktalk.core.errors import UserError
from walktalk.learning import Trainer, TrainingRows, tasks
from walktalk.runtimes.peers import Cluster, load_cluster
from walktalk.studies.planning import Preparation, build_foundation, build_trainer
from walktalk.studies.spec import make_spec, spec_mapping

CONFIG, START = "cluster.yaml", "start.safetensors"  # in a round's folder
AGAIN = 0.5  # seconds until a script whose node is not there looks for it again


@dataclass(frozen=True)
class ScriptJob:
    """What the process of a node's script is given."""

    config: Path  # the cluster's file
    name: str  # the node's
    number: int  # of the node whose data it trains on
    study: dict[str, Any]  # what its own trainer is made of


def cluster_of_scripts(ready: Preparation, cluster: Cluster, folder: Path) -> Cluster:
    """Make a cluster whose nodes are trained by scripts of one that trains by itself; its file is written for them."""
    folder.mkdir(parents=True, exist_ok=True)
    tasks.write_state(ready.trainer.module(ready.runs[0].initial), folder / START)
    samples = {str(number): len(part) for number, part in enumerate(ready.task.parts)}
    task = {"name": "outside", "state": str(folder / START), "samples": samples}
    content = cluster.model_dump(mode="json", exclude_unset=True)
    content["study"] = {**spec_mapping(ready.spec), "task": task}
    (folder / CONFIG).write_text(yaml.safe_dump(content, sort_keys=False))
    return load_cluster(folder / CONFIG)


def run_script(job: ScriptJob) -> None:
    """Train whatever comes to the node, whenever it is there, until somebody ends this process."""
    torch.set_num_threads(1)
    spec = make_spec(job.study)
    task = build_foundation(spec).task_of(tasks.Node(None, job.number))
    trainer = build_trainer(spec, task, "cpu", node=tasks.Node(None, job.number))
    while True:
        try:
            with site(job.config, job.name, start=False) as node:
                for visit in node:
                    train(visit, trainer)
        except UserError:  # the node is not there, or goes: it will be started again
            pass
        time.sleep(AGAIN)


def train(visit: Visit, trainer: Trainer) -> None:
    """One training, as the node's own would be."""
    module = trainer.module(trainer.initial_row(0))
    visit.load(module)
    row = trainer.model.layout.row(module)
    given = TrainingRows(row[None], torch.tensor([0]), torch.tensor([visit.key]), torch.tensor([visit.lr]))
    rows, _ = trainer.train(given)
    visit.finish(trainer.module(rows[0]))
