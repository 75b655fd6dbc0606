"""What a study is: the keys of a specification, what each may be, and the ways from and to YAML."""

from walktalk.studies.spec.load import dump_spec, load_spec, make_spec, nested, preset_names, preset_text, spec_mapping
from walktalk.studies.spec.study import StudySpec, TimingSpec
from walktalk.studies.spec.suggest import suggestion

__all__ = [
    "StudySpec",
    "TimingSpec",
    "dump_spec",
    "load_spec",
    "make_spec",
    "nested",
    "preset_names",
    "preset_text",
    "spec_mapping",
    "suggestion",
]
