"""Kits: one archive for each site of a cluster, with all that the site needs but its key.

    kit.json                  the edition, the site's name, and the digest of every file, signed by the authority
    cluster.yaml              the site's part of the cluster's file, with the study in it
    certs/ca.pem              the authority's certificate
    certs/NAME.pem            the site's certificate, once its request was signed; certs/revoked.pem where there is one
    README.md                 the three commands of that site
    walktalk-NAME.service     a systemd unit
    compose.yaml              a service for containers

`make_kits` writes them where the authority is. At the site `open_kit` unpacks one: it checks the signature and every
digest, makes the key and a request for a certificate, and fits the unit to where it lies. The key never travels. A
later kit of the same site replaces what changed in the folder of the first, and keeps key, certificate and records.
The first kit is trusted as it comes, so its fingerprint is compared by telephone; the later ones must be signed by the
authority of the first.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.hazmat.primitives import hashes

import walktalk
from walktalk.core.errors import SpecError, UnavailableError, UserError
from walktalk.core.untrusted import Refused, parsed_json
from walktalk.core.wall_clock import wall_moment
from walktalk.records import make_folder, replacing, write_text, yaml_text
from walktalk.runtimes.peers.identity.authority import Authority, request_certificate
from walktalk.runtimes.peers.identity.certificates import (
    AUTHORITY,
    RELAY,
    REVOKED_FILE,
    certificates_in,
    credentials,
    entries_of,
    key_of,
    outlook,
)
from walktalk.runtimes.peers.identity.editions import SOON, Edition, heard_edition
from walktalk.runtimes.peers.operations.cluster import FILES, Cluster, study_of
from walktalk.runtimes.peers.operations.kit_archive import (
    MANIFEST,
    REMEDY,
    Manifest,
    check_trusted,
    file_digest,
    manifest_in,
    unpacked,
    write_archive,
)
from walktalk.runtimes.peers.operations.kit_texts import CERTS, CLUSTER_FILE, USUAL, Place, fitted_texts, readme

COUNTER = "kit.json"  # beside the authority's key: the edition that was made last
OTHERS = ("listen", "metrics")  # keys of a node's place that are its own business


# -- what goes into a kit ---------------------------------------------------------------------------------------------


def _plain(cluster: Cluster) -> tuple[dict[str, Any], dict[str, Path]]:
    """A cluster's file as a mapping with its study in it, and the files that it names, by their names in a kit."""
    content: dict[str, Any] = json.loads(cluster.model_dump_json(exclude_defaults=True))
    study = study_of(cluster)
    files: dict[str, Path] = {}
    if isinstance(study, dict):
        study = {key: dict(value) if isinstance(value, dict) else value for key, value in study.items()}
        for section, keys in FILES.items():
            for key in keys if isinstance(study.get(section), dict) else ():
                value = study[section].get(key)
                if isinstance(value, str) and Path(value).is_file():
                    files[Path(value).name] = Path(value)
                    study[section][key] = Path(value).name
    return content | {"study": study, "certificates": CERTS, "folder": "records"}, files


def _part_of(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A site's part of a cluster's file: of the others what it needs to meet them."""
    nodes = {
        other: place if other == name else {key: value for key, value in place.items() if key not in OTHERS}
        for other, place in content["nodes"].items()
    }
    return {**content, "nodes": nodes}


def sites_of(cluster: Cluster) -> list[str]:
    """Who gets a kit: every node of the file, and the relay where there is one."""
    return [*cluster.file_names, *([RELAY] if cluster.relay else [])]


class Kits(NamedTuple):
    """What `make_kits` has made."""

    edition: Edition
    is_new: bool  # whether anything has changed since the kits before
    archives: dict[str, Path]  # by site


def make_kits(cluster: Cluster, authority: Authority, out: Path, days: int, anew: bool = False) -> Kits:
    """Write an archive for each site.

    Args:
        cluster: as it was loaded from its file.
        authority: who signs.
        out: the folder for the archives.
        days: for which a new edition is good.
        anew: make a new edition even where nothing has changed.
    """
    content, files = _plain(cluster)
    digest = _digest(content, files, authority)
    before = last_edition(authority, cluster.name)
    edition, is_new = before, False
    if before is None or anew or before.digest != digest or before.days_left < SOON:
        number, now = 1 if before is None else before.number + 1, wall_moment()
        last = min(now + timedelta(days=days), authority.certificate.not_valid_after_utc)
        made = Edition(cluster.name, number, f"{now:%Y-%m-%d}", f"{last:%Y-%m-%d}", digest, walktalk.__version__)
        edition, is_new = made.signed(authority.key), True
        write_text(authority.folder / COUNTER, json.dumps({"cluster": edition.cluster, **edition.said()}) + "\n")
    assert edition is not None
    archives = {}
    for name in sites_of(cluster):
        archives[name] = out / f"{cluster.name}-{name}.tar.gz"
        write_archive(archives[name], edition, name, _texts(cluster, content, edition, name), files, authority)
    return Kits(edition, is_new, archives)


def last_edition(authority: Authority, cluster: str) -> Edition | None:
    """The edition of which kits were made last for this cluster; None where there were none."""
    try:
        said = parsed_json((authority.folder / COUNTER).read_bytes())
    except (OSError, Refused):
        return None
    if not isinstance(said, dict) or said.get("cluster") != cluster:
        return None
    return heard_edition(cluster, said, None)


def is_stale(edition: Edition, cluster: Cluster, authority: Authority) -> bool:
    """Whether a cluster's file, its study or the authority has changed since this edition."""
    content, files = _plain(cluster)
    return edition.digest != _digest(content, files, authority)


def _digest(content: Mapping[str, Any], files: Mapping[str, Path], authority: Authority) -> str:
    """A digest of all that an edition's kits have in common."""
    sums = {name: file_digest(path) for name, path in sorted(files.items())}
    fingerprint = authority.certificate.fingerprint(hashes.SHA256()).hex()
    whole = json.dumps([content, sums, fingerprint, walktalk.__version__], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def _texts(cluster: Cluster, content: Mapping[str, Any], edition: Edition, name: str) -> dict[str, str]:
    return {
        CLUSTER_FILE: f"# {edition.words} for {name}; changes here make it another study\n"
        + yaml_text.dump(_part_of(content, name)),
        "README.md": readme(edition, name),
        **fitted_texts(name, USUAL._replace(folder=f"/etc/walktalk/{cluster.name}-{name}")),
    }


# -- at a site --------------------------------------------------------------------------------------------------------


class Opened(NamedTuple):
    """What opening a kit has done."""

    folder: Path
    manifest: Manifest
    before: Edition | None  # of the kit that was there
    changed: list[str]  # files that are new or another
    removed: list[str]
    request: Path | None  # to be sent to the operator; None where the certificate is there
    fingerprint: str  # of the authority


def open_kit(path: Path, to: Path | None = None, older: bool = False) -> Opened:
    """Unpack a kit at its site, or bring the folder of an earlier one up to date.

    Args:
        path: the archive.
        to: the folder; one of the kit's own name beside where one is, if left out.
        older: go back to a kit that is older than the one that is there.
    """
    if not path.is_file():
        raise UnavailableError(f"{path} does not exist; give the archive that the operator has sent")
    with tempfile.TemporaryDirectory(prefix="walktalk-kit-") as place:
        new = Path(place)
        manifest, loose = unpacked(path, new)
        folder = to if to is not None else Path(manifest.folder)
        before = manifest_in(folder) if (folder / MANIFEST).is_file() else None
        known = folder if before is not None else new
        check_trusted(manifest, known / CERTS / f"{AUTHORITY}.pem", path)
        if before is not None:
            _check_follows(before, manifest, folder, older)
        make_folder(folder / CERTS)
        os.chmod(folder / CERTS, 0o700)
        changed = [name for name in manifest.files if _take(new / name, folder / name)]
        changed += [name for name in loose if name.startswith(f"{CERTS}/") and _take_newer(new, folder, name)]
        for name, text in fitted_texts(manifest.name, _place_of(folder)).items():
            write_text(folder / name, text)
        gone = [name for name in (before.files if before is not None else ()) if name not in manifest.files]
        for name in gone:
            (folder / name).unlink(missing_ok=True)
        _take(new / MANIFEST, folder / MANIFEST)  # the last: before it, the kit that is there has changed files
    request = _request(folder / CERTS, manifest.name)
    fingerprint = certificates_in(folder / CERTS / f"{AUTHORITY}.pem")[0].fingerprint(hashes.SHA256()).hex(":")
    return Opened(folder, manifest, None if before is None else before.edition, changed, gone, request, fingerprint)


def _check_follows(before: Manifest, after: Manifest, folder: Path, older: bool) -> None:
    if (before.edition.cluster, before.name) != (after.edition.cluster, after.name):
        raise SpecError(
            f"{folder} has the kit of {before.folder}, and this is that of {after.folder}; give another --to"
        )
    if after.edition.number < before.edition.number and not older:
        raise SpecError(
            f"{folder} has {before.edition.words}, and this is {after.edition.words}, an older one; --older goes back"
        )


def _take(source: Path, to: Path) -> bool:
    """Put a file in its place, whole or not at all; whether it is another than what was there."""
    if to.is_file() and file_digest(to) == file_digest(source):
        return False
    with replacing(to) as part:
        shutil.copyfile(source, part)
    return True


def _take_newer(new: Path, folder: Path, name: str) -> bool:
    """Put a certificate or a list of revoked ones in its place, unless the site has a later one."""
    source, to = new / name, folder / name
    if to.is_file():
        if to.name == REVOKED_FILE:
            if entries_of(source.read_bytes(), str(source))[0] <= entries_of(to.read_bytes(), str(to))[0]:
                return False
        elif certificates_in(source)[0].not_valid_before_utc < certificates_in(to)[0].not_valid_before_utc:
            return False
    if to.name != REVOKED_FILE:
        try:
            key_of(certificates_in(source)[0], folder / CERTS, to.stem)
        except UserError as error:
            raise SpecError(
                f"the certificate in this kit is not for the key that is here, in {folder / CERTS}; send "
                f"{folder / CERTS / to.stem}.csr to the operator ({error})"
            ) from error
    return _take(source, to)


def _place_of(folder: Path) -> Place:
    called = Path(sys.argv[0])
    program = called.absolute() if called.name == "walktalk" else Path(sys.executable).parent / "walktalk"
    return Place(str(folder.resolve()), str(program), getpass.getuser(), f"{os.getuid()}:{os.getgid()}")


def _request(certs: Path, name: str) -> Path | None:
    """A request for a certificate; None where there is one for the key that is here."""
    if (certs / f"{name}.pem").is_file():
        key_of(certificates_in(certs / f"{name}.pem")[0], certs, name)
        return None
    return request_certificate(certs, name)[0]


# -- what is to be said of a kit --------------------------------------------------------------------------------------


class KitFinding(NamedTuple):
    """One thing that was looked at in a kit."""

    is_well: bool
    about: str
    said: str
    remedy: str = ""


def check_kit(path: Path) -> list[KitFinding]:
    """What is to be said of a kit: an archive, or the folder that it was opened in."""
    manifest = manifest_in(path)
    edition, made = manifest.edition, manifest.edition.walktalk
    found = [KitFinding(True, "kit", f"{edition.words} for {manifest.name}, of the cluster {edition.cluster}")]
    days = edition.days_left
    until = f"good until {edition.ends}, {days} days" if days >= 0 else f"EXPIRED on {edition.ends}"
    found.append(KitFinding(days >= 0, "end", until, "" if days >= SOON else REMEDY))
    if made != walktalk.__version__:
        said = f"made with walktalk {made}; here is {walktalk.__version__}"
        found.append(KitFinding(True, "version", said, f"pip install 'walktalk[peers]=={made}'"))
    if path.is_dir():
        found += _check_files(path, manifest)
        found += _check_certificate(path / CERTS, manifest.name)
    return found


def _check_files(folder: Path, manifest: Manifest) -> Iterator[KitFinding]:
    wrong = [
        (name, "changed" if (folder / name).is_file() else "missing")
        for name, digest in manifest.files.items()
        if not (folder / name).is_file() or file_digest(folder / name) != digest
    ]
    again = f"walktalk kit open {manifest.folder}.tar.gz, or {REMEDY}"
    for name, how in wrong:
        yield KitFinding(False, "file", f"{name} is {how}", again)
    if not wrong:
        yield KitFinding(True, "files", f"all {len(manifest.files)} are as they were issued")


def _check_certificate(certs: Path, name: str) -> Iterator[KitFinding]:
    if not (certs / f"{name}.pem").is_file():
        asked = certs / f"{name}.csr"
        yield KitFinding(
            False, "certificate", "none yet", f"send {asked} to the operator, and open the kit that comes back"
        )
        return
    try:
        ends = outlook(credentials(certs, name))
    except UserError as error:
        yield KitFinding(False, "certificate", str(error), REMEDY)
        return
    yield KitFinding(True, "certificate", f"valid until {ends.until:%Y-%m-%d}", "" if ends.state == "good" else REMEDY)


def what_is_wrong(folder: Path | None) -> list[str]:
    """What is changed, stale or at its end in a kit, one line each; empty: nothing, or the folder has none."""
    if folder is None or not (folder / MANIFEST).is_file():
        return []
    try:
        return [f"{one.about}: {one.said}; {one.remedy}" for one in check_kit(folder) if not one.is_well]
    except UserError as error:
        return [str(error)]


def edition_of(config_folder: Path | None) -> Edition | None:
    """The edition of the kit whose cluster's file lies in a folder; None where that is no kit, or a damaged one."""
    if config_folder is None or not (config_folder / MANIFEST).is_file():
        return None
    try:
        return manifest_in(config_folder).edition
    except UserError:
        return None
