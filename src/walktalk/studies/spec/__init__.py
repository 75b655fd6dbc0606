"""What a study is: the keys of a specification, what each may be, and the ways from and to YAML."""

from typing import TYPE_CHECKING

from walktalk import lazy

if TYPE_CHECKING:
    from walktalk.studies.spec.algorithm import AlgorithmSpec
    from walktalk.studies.spec.load import dump_spec, load_spec, make_spec, spec_mapping
    from walktalk.studies.spec.sections import (
        Optimizer,
        algorithms_section,
        evaluate_section,
        faults_section,
        network_section,
        optimizer_section,
        schedule_section,
        stop_section,
        timing_section,
    )
    from walktalk.studies.spec.sources import nested, preset_names, preset_text, read_study
    from walktalk.studies.spec.study import StudySpec, TimingSpec

_HOMES = {
    "algorithm": ("AlgorithmSpec",),
    "load": ("dump_spec", "load_spec", "make_spec", "spec_mapping"),
    "sections": (
        "Optimizer",
        "algorithms_section",
        "evaluate_section",
        "faults_section",
        "network_section",
        "optimizer_section",
        "schedule_section",
        "stop_section",
        "timing_section",
    ),
    "sources": ("nested", "preset_names", "preset_text", "read_study"),
    "study": ("StudySpec", "TimingSpec"),
}

__all__ = [
    "AlgorithmSpec",
    "Optimizer",
    "StudySpec",
    "TimingSpec",
    "algorithms_section",
    "dump_spec",
    "evaluate_section",
    "faults_section",
    "load_spec",
    "make_spec",
    "nested",
    "network_section",
    "optimizer_section",
    "preset_names",
    "preset_text",
    "read_study",
    "schedule_section",
    "spec_mapping",
    "stop_section",
    "timing_section",
]

__getattr__ = lazy.attributes(__name__, _HOMES)
__dir__ = lazy.listing(__all__)
