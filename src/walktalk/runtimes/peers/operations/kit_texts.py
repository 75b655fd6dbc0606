"""The texts of a kit: its README, a systemd unit and a service for containers, each for one site.

The units of `examples/deploy` are the same lines; a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import walktalk
from walktalk.runtimes.peers.identity.certificates import RELAY
from walktalk.runtimes.peers.identity.editions import Edition

CLUSTER_FILE, CERTS = "cluster.yaml", "certs"


class Place(NamedTuple):
    """Where a kit lies and who runs it, as its unit and its service need to know."""

    folder: str
    program: str
    user: str
    numbers: str  # of the user and the group, for a container


USUAL = Place("/etc/walktalk", "/opt/walktalk/bin/walktalk", "walktalk", "10001:10001")


def node_unit(name: str, place: Place, config: str, more: Iterable[str]) -> str:
    """The lines of a systemd unit for a node, without the comment at their head.

    Args:
        name: of the node; `%i` in a template.
        place: where it lies; its folder is the working directory.
        config: the cluster's file.
        more: further lines of its section.
    """
    return f"""[Unit]
Description=walktalk node {name}
Wants=network-online.target
After=network-online.target

[Service]
User={place.user}
WorkingDirectory={place.folder}
ExecStart={place.program} node --config {config} --name {name}
# SIGTERM makes the node hand its walks on, which takes up to 10 seconds.
KillSignal=SIGTERM
TimeoutStopSec=30
# A node that died comes back from its own checkpoint.
Restart=on-failure
RestartSec=2
NoNewPrivileges=yes
ProtectSystem=strict
{chr(10).join(more)}

[Install]
WantedBy=multi-user.target
"""


def relay_unit(place: Place, config: str) -> str:
    """The lines of a systemd unit for a relay, without the comment at their head."""
    return f"""[Unit]
Description=walktalk relay
Wants=network-online.target
After=network-online.target
# However often it fails, it is tried again.
StartLimitIntervalSec=0

[Service]
User={place.user}
ExecStart={place.program} relay --config {config}
# It keeps nothing; nodes come back by themselves.
Restart=always
RestartSec=1
TimeoutStopSec=10
# Two connections for each pair that talks, and one for each node.
LimitNOFILE=16384
MemoryMax=256M
NoNewPrivileges=yes
ProtectSystem=strict
CapabilityBoundingSet=
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX

[Install]
WantedBy=multi-user.target
"""


def _unit(name: str, place: Place) -> str:
    config = f"{place.folder}/{CLUSTER_FILE}"
    head = (
        f"# systemd: `systemctl enable --now {place.folder}/walktalk-{name}.service`.\n"
        f"# Its log: `journalctl -u walktalk-{name}`.\n"
        "# `walktalk kit open` has written the user and the paths of this machine into it.\n"
    )
    if name == RELAY:
        return head + relay_unit(place, config)
    return head + node_unit(name, place, config, [f"ReadWritePaths={place.folder}"])


def _compose(name: str, place: Place) -> str:
    words = (
        f"relay, --config, /kit/{CLUSTER_FILE}"
        if name == RELAY
        else f"node, --config, /kit/{CLUSTER_FILE}, --name, {name}"
    )
    return f"""# In this folder: `docker compose up -d` or `podman-compose up -d`.
# The image is that of examples/deploy/Containerfile; WALKTALK_IMAGE names another.
services:
  {name.replace(".", "-")}:
    image: ${{WALKTALK_IMAGE:-localhost/walktalk:{walktalk.__version__}}}
    command: [{words}]
    network_mode: host         # its address in {CLUSTER_FILE} is this machine's
    user: "{place.numbers}"               # who owns this folder, and the key in it
    volumes: [".:/kit"]
    read_only: true
    tmpfs: [/tmp]
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    shm_size: 1g               # for data loaders with workers
    stop_grace_period: 30s     # SIGTERM hands the walks on first
    restart: on-failure        # it goes on from its checkpoint; after the end of the run it stays down
"""


def readme(edition: Edition, name: str) -> str:
    """What a site reads first: its three commands."""
    folder, version, config = f"{edition.cluster}-{name}", edition.walktalk, f"{edition.cluster}-{name}/{CLUSTER_FILE}"
    is_relay = name == RELAY
    run = f"walktalk relay --config {config}" if is_relay else f"walktalk node --config {config} --name {name}"
    look = "" if is_relay else "; it looks whether all will work here, too, as\n"
    look += "" if is_relay else f"   `walktalk doctor --config {config} --name {name}` does at any time"
    return f"""# {name}, of the cluster {edition.cluster}: {edition.words}

Good until {edition.ends}. Made with walktalk {version}; install it with `pip install 'walktalk[peers]=={version}'`.
Three commands, in the folder where the archive lies:

1. `walktalk kit open {folder}.tar.gz` checks the archive, unpacks it into `{folder}`, and makes a key,
   which stays on this machine. Compare the fingerprints that it prints with the operator, by telephone, and send
   `{folder}/{CERTS}/{name}.csr` to the operator; it holds no secret. The archive that comes back is the same
   with your certificate in it.
2. `walktalk kit open {folder}.tar.gz`, the new one, puts the certificate in its place{look}.
3. `{run}`

In place of the third: `sudo systemctl enable --now $PWD/{folder}/walktalk-{name}.service`, or
`docker compose up -d` in `{folder}`.

Later kits are opened in the same way: what changed is replaced; your key, your certificate and `records` stay. Then
start again what runs. `walktalk kit check {folder}` says what is stale, changed or about to end.
"""


def fitted_texts(name: str, place: Place) -> dict[str, str]:
    """The files that a site fits to its machine."""
    return {f"walktalk-{name}.service": _unit(name, place), "compose.yaml": _compose(name, place)}
