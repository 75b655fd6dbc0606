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

import base64
import getpass
import gzip
import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from cryptography.hazmat.primitives import hashes

import walktalk
from walktalk.core.errors import SpecError, UnavailableError, UserError
from walktalk.core.untrusted import Refused, parsed_json, reading
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
from walktalk.runtimes.peers.identity.editions import SOON, Edition, check_signed, heard_edition
from walktalk.runtimes.peers.identity.signed_statements import signature_of
from walktalk.runtimes.peers.operations.cluster import FILES, Cluster, study_of
from walktalk.runtimes.peers.operations.kit_texts import CERTS, CLUSTER_FILE, USUAL, Place, fitted_texts, readme

MANIFEST = "kit.json"
COUNTER = "kit.json"  # beside the authority's key: the edition that was made last
LARGEST_FILE = 64 << 30  # bytes of one file of an archive
LARGEST_MANIFEST = 1 << 20
MOST_FILES = 1000
COPIED = 1 << 20  # bytes at once
OTHERS = ("listen", "metrics")  # keys of a node's place that are its own business
REMEDY = "ask the operator for a new kit: walktalk kit --config CLUSTER.yaml"


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
        _write_archive(archives[name], edition, name, _texts(cluster, content, edition, name), files, authority)
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


def file_digest(path: Path) -> str:
    """The digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if sys.version_info >= (3, 11) else _hashed(file)


def _hashed(file: Any) -> str:
    digest = hashlib.sha256()
    while piece := file.read(COPIED):
        digest.update(piece)
    return digest.hexdigest()


def _texts(cluster: Cluster, content: Mapping[str, Any], edition: Edition, name: str) -> dict[str, str]:
    return {
        CLUSTER_FILE: f"# {edition.words} for {name}; changes here make it another study\n"
        + yaml_text.dump(_part_of(content, name)),
        "README.md": readme(edition, name),
        **fitted_texts(name, USUAL._replace(folder=f"/etc/walktalk/{cluster.name}-{name}")),
    }


# -- the archive ------------------------------------------------------------------------------------------------------


def _write_archive(
    path: Path, edition: Edition, name: str, texts: Mapping[str, str], files: Mapping[str, Path], authority: Authority
) -> None:
    top, folder = f"{edition.cluster}-{name}", authority.folder
    checked: dict[str, bytes | Path] = {file: text.encode() for file, text in texts.items()}
    checked |= {f"{CERTS}/{AUTHORITY}.pem": folder / f"{AUTHORITY}.pem", **files}
    fitted = fitted_texts(name, USUAL)
    sums = {
        file: file_digest(content) if isinstance(content, Path) else hashlib.sha256(content).hexdigest()
        for file, content in checked.items()
        if file not in fitted
    }
    manifest = {"edition": edition.said(), "cluster": edition.cluster, "name": name, "files": sums}
    signature = base64.b64encode(signature_of(_canonical(manifest), authority.key)).decode()
    whole = json.dumps({**manifest, "signature": signature}, indent=1, sort_keys=True) + "\n"
    loose = {f"{CERTS}/{file}": folder / file for file in (f"{name}.pem", REVOKED_FILE) if (folder / file).is_file()}
    moment = datetime.fromisoformat(edition.issued).replace(tzinfo=timezone.utc).timestamp()
    with (
        replacing(path) as part,
        part.open("wb") as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for file, content in {MANIFEST: whole.encode(), **checked, **loose}.items():
            _add(archive, f"{top}/{file}", content, int(moment))


def _add(archive: tarfile.TarFile, name: str, content: bytes | Path, moment: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.mtime = 0o644, moment
    if isinstance(content, bytes):
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
        return
    entry.size = content.stat().st_size
    with content.open("rb") as file:
        archive.addfile(entry, file)


def _canonical(manifest: Mapping[str, Any]) -> bytes:
    return json.dumps({"what": "walktalk kit", **manifest}, sort_keys=True).encode()


@dataclass(frozen=True)
class Manifest:
    """What a kit's manifest says, whose signature was not looked at yet."""

    edition: Edition
    name: str
    files: Mapping[str, str]  # digests by name
    content: bytes  # that is signed
    signature: str

    @property
    def folder(self) -> str:
        """The name of the folder that a kit is unpacked into."""
        return f"{self.edition.cluster}-{self.name}"

    def check(self, authority: Path) -> None:
        """Raise `Refused` where nobody in this file of certificates has signed it."""
        check_signed(self.content, self.signature, authority)
        self.edition.check(authority)


def read_manifest(path: Path, where: Path) -> Manifest:
    """Read a manifest; a `SpecError` where it is none.

    Args:
        path: the file.
        where: what a person knows it is in.
    """
    try:
        return reading("a manifest", lambda: _manifest(path.read_bytes()))
    except Refused as error:
        raise SpecError(f"{where} is no kit, or it was damaged: {error}; {REMEDY}") from error


def _manifest(data: bytes) -> Manifest:
    said = parsed_json(data)
    signature = said.pop("signature")
    edition = heard_edition(str(said["cluster"]), said["edition"], None)
    files = {_safe(name): str(digest) for name, digest in said["files"].items()}
    if edition is None or f"{CERTS}/{AUTHORITY}.pem" not in files or CLUSTER_FILE not in files:
        raise Refused("it lacks its edition, its cluster's file or the authority's certificate")
    return Manifest(edition, _safe(str(said["name"])), files, _canonical(said), str(signature))


def _safe(name: str) -> str:
    """A file's name in a kit; `Refused` where it would lie elsewhere."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in name:
        raise Refused(f"{name!r} cannot be a file of a kit")
    return str(path)


def manifest_in(path: Path) -> Manifest:
    """The manifest of an archive or of a folder that one was opened in, with its signature checked."""
    if path.is_dir():
        manifest = read_manifest(path / MANIFEST, path)
        _trusted(manifest, path / CERTS / f"{AUTHORITY}.pem", path)
        return manifest
    with tempfile.TemporaryDirectory(prefix="walktalk-kit-") as place:
        manifest, _ = _unpacked(path, Path(place))
        _trusted(manifest, Path(place) / CERTS / f"{AUTHORITY}.pem", path)
    return manifest


def _trusted(manifest: Manifest, authority: Path, where: Path) -> None:
    try:
        manifest.check(authority)
    except (Refused, UserError) as error:
        raise SpecError(f"{where}: this kit was changed, or is of another authority: {error}; {REMEDY}") from error


def _unpacked(path: Path, into: Path) -> tuple[Manifest, list[str]]:
    """Unpack an archive whose files are those of its manifest; returns it and the files that it does not vouch for."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            found = dict(_members(archive))
            if MANIFEST not in found:
                raise Refused(f"it has no {MANIFEST}")
            for name, entry in found.items():
                _unpack(archive, entry, into / name, LARGEST_MANIFEST if name == MANIFEST else LARGEST_FILE)
    except (OSError, tarfile.TarError, EOFError, ValueError) as error:
        raise SpecError(f"{path} is no kit: {' '.join(str(error).split())}; {REMEDY}") from error
    manifest = read_manifest(into / MANIFEST, path)
    for name, digest in manifest.files.items():
        if not (into / name).is_file() or file_digest(into / name) != digest:
            raise SpecError(f"{path}: {name} was changed or is missing; {REMEDY}")
    loose = [name for name in found if name not in manifest.files and name != MANIFEST]
    allowed = {f"{CERTS}/{manifest.name}.pem", f"{CERTS}/{REVOKED_FILE}", *fitted_texts(manifest.name, USUAL)}
    if strange := [name for name in loose if name not in allowed]:
        raise SpecError(f"{path}: {strange[0]} is no part of this kit; {REMEDY}")
    return manifest, loose


def _members(archive: tarfile.TarFile) -> Iterator[tuple[str, tarfile.TarInfo]]:
    for count, entry in enumerate(archive):
        if count >= MOST_FILES or not entry.isreg():
            raise Refused(f"{entry.name!r}: a kit has files only, {MOST_FILES} at most")
        yield _safe("/".join(PurePosixPath(_safe(entry.name)).parts[1:])), entry


def _unpack(archive: tarfile.TarFile, entry: tarfile.TarInfo, to: Path, largest: int) -> None:
    source = archive.extractfile(entry)
    if source is None or entry.size > largest:
        raise Refused(f"{entry.name!r} has {entry.size:,} bytes")
    make_folder(to.parent)
    with source, to.open("wb") as file:
        shutil.copyfileobj(source, file, COPIED)


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
        manifest, loose = _unpacked(path, new)
        folder = to if to is not None else Path(manifest.folder)
        before = manifest_in(folder) if (folder / MANIFEST).is_file() else None
        known = folder if before is not None else new
        _trusted(manifest, known / CERTS / f"{AUTHORITY}.pem", path)
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


def edition_of(config_folder: Path | None) -> Edition | None:
    """The edition of the kit whose cluster's file lies in a folder; None where that is no kit, or a damaged one."""
    if config_folder is None or not (config_folder / MANIFEST).is_file():
        return None
    try:
        return manifest_in(config_folder).edition
    except UserError:
        return None
