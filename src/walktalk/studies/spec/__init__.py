"""What a study is: the keys of a specification, what each may be, and the ways from and to YAML."""

from typing import TYPE_CHECKING

from walktalk import lazy

if TYPE_CHECKING:
    from walktalk.studies.spec.load import dump_spec, load_spec, make_spec, spec_mapping
    from walktalk.studies.spec.sources import nested, preset_names, preset_text, read_study
    from walktalk.studies.spec.study import StudySpec, TimingSpec

_HOMES = {
    "load": ("dump_spec", "load_spec", "make_spec", "spec_mapping"),
    "sources": ("nested", "preset_names", "preset_text", "read_study"),
    "study": ("StudySpec", "TimingSpec"),
}

__all__ = [
    "StudySpec",
    "TimingSpec",
    "dump_spec",
    "load_spec",
    "make_spec",
    "nested",
    "preset_names",
    "preset_text",
    "read_study",
    "spec_mapping",
]

__getattr__ = lazy.attributes(__name__, _HOMES)
