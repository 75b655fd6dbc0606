"""The record of who trained what: the signed statements of all sites in one file, which every site can check.

`collect` puts it together at the end: of each node its own statement (`node.statement`), the names of those of whom
there is none, and the signature of whoever has collected under all of it. To check it one needs the authority's
certificate and nothing else; nobody is asked.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from walktalk.core.errors import StudyError
from walktalk.core.untrusted import Limits, Refused, parsed_json, reading, shown
from walktalk.core.wall_clock import wall_seconds
from walktalk.runtimes.peers.identity.certificates import (
    LONGEST_CHAIN,
    OPERATOR,
    Credentials,
    Revocations,
    bearer,
    certificate_from,
    certificates_in,
    common_name,
    is_issued_by,
    read_revoked,
)
from walktalk.runtimes.peers.identity.signed_statements import check_signature
from walktalk.runtimes.peers.node.statement import FORM, RECEIVED, SENT, bytes_to_sign, in_words, signed

RECORD_FILE = "record.json"
RECORD_FORM = "walktalk-record-1"
RECORD = Limits(size=64 << 20, items=2_000_000)
ONE = Limits(size=8 << 20, items=500_000)  # of one node's statement, from wherever it comes
SHOWN = 5  # differences between two studies that are named


def read_statement(path: Path) -> dict[str, Any] | None:
    """A node's statement as it lies in a folder; None where there is none, or it is nonsense."""
    try:
        found = parsed_json(path.read_bytes(), ONE)
    except (OSError, Refused):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("statement"), dict) else None


def make_record(
    cluster: str,
    statements: Mapping[str, Mapping[str, Any] | None],
    result: Mapping[str, Any],
    files: Credentials | None,
) -> dict[str, Any]:
    """Put the statements of all sites together.

    Args:
        cluster: Its name.
        statements: By node; None where there is none.
        result: What came of the run: texts, whole numbers, lists and objects.
        files: Of whoever collects; None: there are no certificates.
    """
    content = {
        "form": RECORD_FORM,
        "cluster": cluster,
        "made": in_words(wall_seconds()),
        "result": dict(result),
        "sites": {name: dict(said) for name, said in statements.items() if said is not None},
        "without_statement": sorted(name for name, said in statements.items() if said is None),
    }
    outer = signed(content, files)
    return {**content, "by": {"certificates": outer["certificates"], "signature": outer["signature"]}}


def read_record(path: Path) -> dict[str, Any]:
    """A record as it lies in a file; a `StudyError` where it is none, or of a form that is not known here."""
    try:
        found = parsed_json(path.read_bytes(), RECORD)
    except OSError as error:
        raise StudyError(f"{path} cannot be read: {error.strerror}") from error
    except Refused as error:
        raise StudyError(f"{path} is no record of a run: {error}") from error
    form = found.get("form") if isinstance(found, dict) else None
    if form != RECORD_FORM:
        said = f"it is of the form {shown(form, 40)!r}, and this walktalk reads {RECORD_FORM!r}" if form else "no form"
        raise StudyError(f"{path} is no record that can be read: {said}")
    return dict(found)


# -- checking it ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Site:
    """What the record says of one site, and what is wrong with that."""

    name: str
    problems: tuple[str, ...] = ()
    said: Mapping[str, Any] = field(default_factory=dict)  # its statement; empty where there is none

    def number(self, key: str) -> int:
        """A count of its statement; 0 where it says none."""
        value = self.said.get(key)
        return value if type(value) is int else 0

    def flows(self, way: str) -> dict[str, dict[str, Any]]:
        """What it says that it sent to whom, or got from whom."""
        found = self.said.get(way)
        pairs = found.items() if isinstance(found, dict) else ()
        return {str(peer): flow for peer, flow in pairs if isinstance(flow, dict)}

    def models(self, way: str, peer: str) -> int:
        """How many models it says went to another, or came from there."""
        value = self.flows(way).get(peer, {}).get("models")
        return value if type(value) is int else 0

    def moment(self, first: bool) -> str:
        """When it was there first, or last; "" where it does not say."""
        lives = self.said.get("lives")
        one = lives[0 if first else -1] if isinstance(lives, list) and lives else None
        return shown(one.get("began" if first else "last", "")) if isinstance(one, dict) else ""


@dataclass(frozen=True)
class Checked:
    """A record that was checked."""

    sites: list[Site]
    problems: list[str]  # of the record as a whole

    @property
    def complaints(self) -> list[str]:
        """All that is wrong, one line each; empty: every site has signed what stands there."""
        return [*self.problems, *(f"{site.name}: {problem}" for site in self.sites for problem in site.problems)]


def check_record(record: Mapping[str, Any], authority: Path, revoked: Revocations | None = None) -> Checked:
    """Check every signature of a record, and whether what sites say fits together.

    Args:
        record: As it was read.
        authority: The file with the authority's certificate.
        revoked: Which certificates hold no more.
    """
    cluster, sites = str(record.get("cluster")), record.get("sites")
    authorities = certificates_in(authority)
    found = {
        shown(name, 63): _checked_site(str(name), said, cluster, authorities, revoked or Revocations())
        for name, said in (sites.items() if isinstance(sites, dict) else ())
    }
    named = {str(one) for site in found.values() for one in _list(site.said.get("members"))}
    for name in sorted({*map(str, _list(record.get("without_statement"))), *named} - set(found)):
        found[name] = Site(name, ("there is no statement of it",))
    problems = [*_about_whole(record, authorities), *_about_studies(found.values())]
    fitting = {name: _fitting(site, found) for name, site in found.items()}
    return Checked([fitting[name] for name in sorted(fitting)], problems)


def revocations_beside(authority: Path) -> Revocations:
    """The list of certificates that hold no more, beside the authority's certificate; an empty one where none is."""
    return read_revoked(authority.parent, certificates_in(authority))


def authority_in_words(authority: Path) -> str:
    """The authority's fingerprint, to be compared by telephone."""
    digest = certificates_in(authority)[0].fingerprint(hashes.SHA256()).hex()
    return ":".join(digest[at : at + 4] for at in range(0, 32, 4))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _checked_site(
    name: str, said: Any, cluster: str, authorities: list[x509.Certificate], revoked: Revocations
) -> Site:
    statement = said.get("statement") if isinstance(said, dict) else None
    if not isinstance(statement, dict):
        return Site(name, ("there is no statement of it",))
    problems = []
    if why := why_not_signed(said, statement, name, authorities, revoked):
        problems.append(why)
    if statement.get("form") != FORM:
        problems.append(f"its statement is of the form {shown(statement.get('form'), 40)!r}, not {FORM!r}")
    if statement.get("node") != name:
        problems.append(f"its statement is about {shown(statement.get('node'), 63)!r}")
    if statement.get("cluster") != cluster:
        problems.append(f"its statement is about the cluster {shown(statement.get('cluster'), 63)!r}")
    if statement.get("whole") is False:
        problems.append("what it sent in earlier lives is not counted")
    return Site(name, tuple(problems), statement)


def why_not_signed(
    said: Mapping[str, Any],
    content: Mapping[str, Any],
    name: str,
    authorities: list[x509.Certificate],
    revoked: Revocations,
) -> str:
    """Why something is not signed by a node of this name; "" where it is.

    Args:
        said: The certificates and the signature.
        content: What was signed.
        name: Whose signature it has to be.
        authorities: Whose certificates count.
        revoked: Which certificates hold no more.
    """
    forms, signature = _list(said.get("certificates"))[:LONGEST_CHAIN], said.get("signature")
    if not forms or not signature:
        return "it is not signed"
    try:
        own, *between = reading("certificates", lambda: [certificate_from(_bytes(form)) for form in forms])
        holder = common_name(own)
        if not is_issued_by(own, authorities, between):
            return f"it is signed with a certificate of another authority, made out to {shown(holder, 63)!r}"
        if bearer(holder) != name:
            return f"it is signed by {shown(bearer(holder), 63)!r}"
        check_signature(bytes_to_sign(content), reading("a signature", lambda: _bytes(signature)), own)
    except ValueError as error:
        altered = "its signature is not" in str(error)
        return "it was altered after it was signed" if altered else f"it is not signed: {shown(error)}"
    since = revoked.since(own)
    return "" if since is None else f"the certificate that it is signed with was revoked on {since:%Y-%m-%d}"


def _bytes(text: Any) -> bytes:
    return base64.b64decode(str(text), validate=True)


def _about_whole(record: Mapping[str, Any], authorities: list[x509.Certificate]) -> Iterator[str]:
    """Whether whoever collected has signed all of it."""
    by = record.get("by")
    content = {key: value for key, value in record.items() if key != "by"}
    why = why_not_signed(by if isinstance(by, dict) else {}, content, OPERATOR, authorities, Revocations())
    if why:
        yield f"the record as a whole: {why}"


def _about_studies(sites: Iterable[Site]) -> Iterator[str]:
    """Whether all were of one study."""
    first: Site | None = None
    for site in sites:
        study = site.said.get("study")
        if not isinstance(study, dict):
            continue
        if first is None:
            first = site
            continue
        known = first.said["study"]
        keys = [key for key in sorted({*study, *known}) if study.get(key) != known.get(key)]
        if keys:
            yield f"{site.name} and {first.name} were of different studies: {', '.join(map(shown, keys[:SHOWN]))}"


def _fitting(site: Site, sites: Mapping[str, Site]) -> Site:
    """The site, with what others got from it and it does not say that it sent; of one that runs no more.

    What is wrong in itself says nothing of others.
    """
    if site.problems or site.said.get("state") not in ("over", "left"):
        return site
    wrong = []
    for other in (one for one in sites.values() if not one.problems):
        got, given = other.models(RECEIVED, site.name), site.models(SENT, other.name)
        if got > given:
            wrong.append(f"it says that it sent {given:,} models to {other.name}, which got {got:,} from it")
    return Site(site.name, (*site.problems, *wrong), site.said)


def text_of(record: Mapping[str, Any]) -> str:
    """A record as the text of a file."""
    return json.dumps(record, indent=1, sort_keys=True) + "\n"
