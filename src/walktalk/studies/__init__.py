"""Studies: many runs on one graph and one split of the data, from a specification to their records."""

from typing import TYPE_CHECKING

from walktalk import lazy

if TYPE_CHECKING:
    from walktalk.studies.building import (
        AlgorithmPlan,
        PlannedRun,
        Preparation,
        Progress,
        RunRecord,
        build_graph,
        build_protocols,
        build_task,
        planned_runs,
        prepare,
    )
    from walktalk.studies.driving import (
        SGD,
        Adam,
        AdamW,
        Forecast,
        Interrupted,
        Optimizer,
        Run,
        Runner,
        fitting_groups,
        forecast,
        parse_memory,
        run_study,
        train,
    )
    from walktalk.studies.results import StudyResult, algorithms_of, first_below, summarize
    from walktalk.studies.spec import (
        StudySpec,
        dump_spec,
        load_spec,
        make_spec,
        nested,
        preset_names,
        preset_text,
        read_study,
        spec_mapping,
    )

_HOMES = {
    "building": (
        "AlgorithmPlan",
        "PlannedRun",
        "Preparation",
        "Progress",
        "RunRecord",
        "build_graph",
        "build_protocols",
        "build_task",
        "planned_runs",
        "prepare",
    ),
    "driving": (
        "SGD",
        "Adam",
        "AdamW",
        "Forecast",
        "Interrupted",
        "Optimizer",
        "Run",
        "Runner",
        "fitting_groups",
        "forecast",
        "parse_memory",
        "run_study",
        "train",
    ),
    "results": ("StudyResult", "algorithms_of", "first_below", "summarize"),
    "spec": (
        "StudySpec",
        "dump_spec",
        "load_spec",
        "make_spec",
        "nested",
        "preset_names",
        "preset_text",
        "read_study",
        "spec_mapping",
    ),
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
    "algorithms_of",
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
