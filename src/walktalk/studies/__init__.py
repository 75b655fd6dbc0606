"""Studies: many runs on one graph and one split of the data, from a specification to their records."""

from typing import TYPE_CHECKING

from walktalk import lazy

if TYPE_CHECKING:
    from walktalk.studies.build import AlgorithmPlan, build_graph, build_protocols, build_task
    from walktalk.studies.forecasting import Forecast, forecast
    from walktalk.studies.groups import fitting_groups, parse_memory
    from walktalk.studies.one_run import SGD, Adam, AdamW, Optimizer, Run, train
    from walktalk.studies.overrides import nested
    from walktalk.studies.preset_files import preset_names, preset_text, read_study
    from walktalk.studies.run import Preparation, StudyResult, planned_runs, prepare, run_study
    from walktalk.studies.runner import Runner
    from walktalk.studies.runs import PlannedRun, Progress, RunRecord
    from walktalk.studies.spec import StudySpec
    from walktalk.studies.spec_load import dump_spec, load_spec, make_spec, spec_mapping
    from walktalk.studies.summary import first_below, summarize
    from walktalk.studies.surroundings import Interrupted

_HOMES = {
    "build": ("AlgorithmPlan", "build_graph", "build_protocols", "build_task"),
    "forecasting": ("Forecast", "forecast"),
    "groups": ("fitting_groups", "parse_memory"),
    "one_run": ("SGD", "Adam", "AdamW", "Optimizer", "Run", "train"),
    "overrides": ("nested",),
    "preset_files": ("preset_names", "preset_text", "read_study"),
    "run": ("Preparation", "StudyResult", "planned_runs", "prepare", "run_study"),
    "runner": ("Runner",),
    "runs": ("PlannedRun", "Progress", "RunRecord"),
    "spec": ("StudySpec",),
    "spec_load": ("dump_spec", "load_spec", "make_spec", "spec_mapping"),
    "summary": ("first_below", "summarize"),
    "surroundings": ("Interrupted",),
}

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "AlgorithmPlan",
    "Forecast",
    "Interrupted",
    "Optimizer",
    "PlannedRun",
    "Preparation",
    "Progress",
    "Run",
    "RunRecord",
    "Runner",
    "StudyResult",
    "StudySpec",
    "build_graph",
    "build_protocols",
    "build_task",
    "dump_spec",
    "first_below",
    "fitting_groups",
    "forecast",
    "load_spec",
    "make_spec",
    "nested",
    "parse_memory",
    "planned_runs",
    "prepare",
    "preset_names",
    "preset_text",
    "read_study",
    "run_study",
    "spec_mapping",
    "summarize",
    "train",
]

__getattr__ = lazy.attributes(__name__, _HOMES)
