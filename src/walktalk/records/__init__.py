"""Records: what every run leaves behind, simulated or real. History, trace, checkpoint, and the folder they lie in."""

from typing import TYPE_CHECKING

from walktalk import lazy

if TYPE_CHECKING:
    from walktalk.records import yaml_text
    from walktalk.records.atomic import remove_unfinished, replacing, write_bytes, write_text, write_unless_there
    from walktalk.records.checkpoint import load_checkpoint, save_checkpoint
    from walktalk.records.folder import RunFolder, StudyFolder, existing_folder, folder_name
    from walktalk.records.history import (
        COLUMNS,
        RUN_COLUMNS,
        HistoryRow,
        frame,
        history_text,
        read_history,
        write_history,
    )
    from walktalk.records.listing import ListedStudy, studies_below
    from walktalk.records.opening import check_folder, opened_folder, replacing_files
    from walktalk.records.trace import TRACE_COLUMNS, TraceRow, TraceWriter, read_trace

_HOMES = {
    "": ("yaml_text",),
    "atomic": ("remove_unfinished", "replacing", "write_bytes", "write_text", "write_unless_there"),
    "checkpoint": ("load_checkpoint", "save_checkpoint"),
    "folder": ("RunFolder", "StudyFolder", "existing_folder", "folder_name"),
    "history": ("COLUMNS", "RUN_COLUMNS", "HistoryRow", "frame", "history_text", "read_history", "write_history"),
    "listing": ("ListedStudy", "studies_below"),
    "opening": ("check_folder", "opened_folder", "replacing_files"),
    "trace": ("TRACE_COLUMNS", "TraceRow", "TraceWriter", "read_trace"),
}

__all__ = [
    "COLUMNS",
    "RUN_COLUMNS",
    "TRACE_COLUMNS",
    "HistoryRow",
    "ListedStudy",
    "RunFolder",
    "StudyFolder",
    "TraceRow",
    "TraceWriter",
    "check_folder",
    "existing_folder",
    "folder_name",
    "frame",
    "history_text",
    "load_checkpoint",
    "opened_folder",
    "read_history",
    "read_trace",
    "remove_unfinished",
    "replacing",
    "replacing_files",
    "save_checkpoint",
    "studies_below",
    "write_bytes",
    "write_history",
    "write_text",
    "write_unless_there",
    "yaml_text",
]

__getattr__ = lazy.attributes(__name__, _HOMES)
__dir__ = lazy.listing(__all__)
