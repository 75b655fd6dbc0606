"""The real engine: one process a node, on any number of machines, over Zenoh, with no head."""

from typing import TYPE_CHECKING

from walktalk import lazy

if TYPE_CHECKING:
    from walktalk.runtimes.peers.acquaintance import facts_of
    from walktalk.runtimes.peers.assembly import Delivery, Limits
    from walktalk.runtimes.peers.authority import (
        make_authority,
        make_certificate,
        make_certificates,
        open_authority,
        request_certificate,
        revoke_certificates,
        sign_request,
        why_kept,
    )
    from walktalk.runtimes.peers.certificates import OPERATOR, credentials, valid_until
    from walktalk.runtimes.peers.cluster import Cluster, Place, check_name, load_cluster, make_cluster
    from walktalk.runtimes.peers.cluster_health import aggregators, cluster_complaints
    from walktalk.runtimes.peers.diary import Diary
    from walktalk.runtimes.peers.diary_parts import opened_part, parts_in
    from walktalk.runtimes.peers.handing_out import COPY, FILES, Copy, set_aside
    from walktalk.runtimes.peers.joining import Newcomer, knock
    from walktalk.runtimes.peers.keeping import finished_before
    from walktalk.runtimes.peers.launcher import Fleet, end_process, leave_on_signals, quiet_process
    from walktalk.runtimes.peers.ledger import Ledger
    from walktalk.runtimes.peers.link import Link, Listener
    from walktalk.runtimes.peers.logs import LogFormat, write_logs
    from walktalk.runtimes.peers.node import Node
    from walktalk.runtimes.peers.node_members import surroundings
    from walktalk.runtimes.peers.node_state import BLOCKED, SPOILS, SWALLOWS, NodeSetup
    from walktalk.runtimes.peers.operator import (
        Caller,
        ask_everyone,
        ask_to_leave,
        everybody,
        known_roster,
        written_roster,
    )
    from walktalk.runtimes.peers.ports import with_known_ports, with_own_port
    from walktalk.runtimes.peers.relay import Relay
    from walktalk.runtimes.peers.replaying import Replayed, ReplaySetup, replay
    from walktalk.runtimes.peers.roster import MEMBERS_FILE, Entry, Roster, Standing, as_text, from_text, signed_entry
    from walktalk.runtimes.peers.session import (
        LEAVE,
        RECORDS,
        REVOKED,
        ROSTER,
        STATUS,
        STOP,
        Endpoint,
        Tuning,
        close_session,
        open_session,
    )
    from walktalk.runtimes.peers.showing import certificate_rows, described
    from walktalk.runtimes.peers.traces import merge, read_diary, read_lives
    from walktalk.runtimes.peers.unused_ports import free_ports
    from walktalk.runtimes.peers.watching import shown
    from walktalk.runtimes.peers.wire import Parcel, Stamp

_HOMES = {
    "assembly": ("Delivery", "Limits"),
    "authority": (
        "make_authority",
        "make_certificate",
        "make_certificates",
        "open_authority",
        "request_certificate",
        "revoke_certificates",
        "sign_request",
        "why_kept",
    ),
    "certificates": ("OPERATOR", "credentials", "valid_until"),
    "cluster": ("Cluster", "Place", "check_name", "load_cluster", "make_cluster"),
    "acquaintance": ("facts_of",),
    "cluster_health": ("aggregators", "cluster_complaints"),
    "diary": ("Diary",),
    "diary_parts": ("opened_part", "parts_in"),
    "handing_out": ("COPY", "FILES", "Copy", "set_aside"),
    "joining": ("Newcomer", "knock"),
    "keeping": ("finished_before",),
    "launcher": ("Fleet", "end_process", "leave_on_signals", "quiet_process"),
    "ledger": ("Ledger",),
    "link": ("Link", "Listener"),
    "logs": ("LogFormat", "write_logs"),
    "node": ("Node",),
    "node_members": ("surroundings",),
    "node_state": ("BLOCKED", "SPOILS", "SWALLOWS", "NodeSetup"),
    "operator": ("Caller", "ask_everyone", "ask_to_leave", "everybody", "known_roster", "written_roster"),
    "ports": ("with_known_ports", "with_own_port"),
    "relay": ("Relay",),
    "replaying": ("Replayed", "ReplaySetup", "replay"),
    "roster": ("MEMBERS_FILE", "Entry", "Roster", "Standing", "as_text", "from_text", "signed_entry"),
    "session": (
        "LEAVE",
        "RECORDS",
        "REVOKED",
        "ROSTER",
        "STATUS",
        "STOP",
        "Endpoint",
        "Tuning",
        "close_session",
        "open_session",
    ),
    "showing": ("certificate_rows", "described"),
    "traces": ("merge", "read_diary", "read_lives"),
    "unused_ports": ("free_ports",),
    "watching": ("shown",),
    "wire": ("Parcel", "Stamp"),
}
__all__ = [
    "BLOCKED",
    "COPY",
    "FILES",
    "LEAVE",
    "MEMBERS_FILE",
    "OPERATOR",
    "RECORDS",
    "REVOKED",
    "ROSTER",
    "SPOILS",
    "STATUS",
    "STOP",
    "SWALLOWS",
    "Caller",
    "Cluster",
    "Copy",
    "Delivery",
    "Diary",
    "Endpoint",
    "Entry",
    "Fleet",
    "Ledger",
    "Limits",
    "Link",
    "Listener",
    "LogFormat",
    "Newcomer",
    "Node",
    "NodeSetup",
    "Parcel",
    "Place",
    "Relay",
    "ReplaySetup",
    "Replayed",
    "Roster",
    "Stamp",
    "Standing",
    "Tuning",
    "aggregators",
    "as_text",
    "ask_everyone",
    "ask_to_leave",
    "certificate_rows",
    "check_name",
    "close_session",
    "cluster_complaints",
    "credentials",
    "described",
    "end_process",
    "everybody",
    "facts_of",
    "finished_before",
    "free_ports",
    "from_text",
    "knock",
    "known_roster",
    "leave_on_signals",
    "load_cluster",
    "make_authority",
    "make_certificate",
    "make_certificates",
    "make_cluster",
    "merge",
    "open_authority",
    "open_session",
    "opened_part",
    "parts_in",
    "quiet_process",
    "read_diary",
    "read_lives",
    "replay",
    "request_certificate",
    "revoke_certificates",
    "set_aside",
    "shown",
    "sign_request",
    "signed_entry",
    "surroundings",
    "valid_until",
    "why_kept",
    "with_known_ports",
    "with_own_port",
    "write_logs",
    "written_roster",
]

__getattr__ = lazy.attributes(__name__, _HOMES)
__dir__ = lazy.listing(__all__)
