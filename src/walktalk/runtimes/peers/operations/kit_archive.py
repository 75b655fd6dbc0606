"""A kit as an archive: how it is written, and how it is read by whoever does not trust it yet.

`kit.json` has the edition, the site's name and the digest of every file, signed by the authority. Certificates, and the
files that a site fits to its machine, are not among them. Whatever else lies in an archive is refused.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import Any

from walktalk.core.errors import SpecError, UserError
from walktalk.core.untrusted import Refused, parsed_json, reading
from walktalk.records import make_folder, replacing
from walktalk.runtimes.peers.identity.authority import Authority
from walktalk.runtimes.peers.identity.certificates import AUTHORITY, REVOKED_FILE
from walktalk.runtimes.peers.identity.editions import Edition, check_signed, heard_edition
from walktalk.runtimes.peers.identity.signed_statements import signature_of
from walktalk.runtimes.peers.operations.kit_texts import CERTS, CLUSTER_FILE, USUAL, fitted_texts

MANIFEST = "kit.json"
LARGEST_FILE = 64 << 30  # bytes of one file of an archive
LARGEST_MANIFEST = 1 << 20
MOST_FILES = 1000
COPIED = 1 << 20  # bytes at once
REMEDY = "ask the operator for a new kit: walktalk kit --config CLUSTER.yaml"


def file_digest(path: Path) -> str:
    """The digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if sys.version_info >= (3, 11) else _hashed(file)


def _hashed(file: Any) -> str:
    digest = hashlib.sha256()
    while piece := file.read(COPIED):
        digest.update(piece)
    return digest.hexdigest()


def write_archive(
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
        check_trusted(manifest, path / CERTS / f"{AUTHORITY}.pem", path)
        return manifest
    with tempfile.TemporaryDirectory(prefix="walktalk-kit-") as place:
        manifest, _ = unpacked(path, Path(place))
        check_trusted(manifest, Path(place) / CERTS / f"{AUTHORITY}.pem", path)
    return manifest


def check_trusted(manifest: Manifest, authority: Path, where: Path) -> None:
    try:
        manifest.check(authority)
    except (Refused, UserError) as error:
        raise SpecError(f"{where}: this kit was changed, or is of another authority: {error}; {REMEDY}") from error


def unpacked(path: Path, into: Path) -> tuple[Manifest, list[str]]:
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
