"""The power fails at any moment: what was promised to be there is there, whole, and nothing else is taken for it."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from walktalk import graphs
from walktalk.core.errors import UserError
from walktalk.records import TraceRow, load_checkpoint, save_checkpoint, write_text
from walktalk.runtimes.peers.identity.authority import (
    make_certificates,
    open_authority,
    request_certificate,
    revoke_certificates,
    sign_request,
)
from walktalk.runtimes.peers.identity.certificates import REVOKED_FILE, certificates_in, credentials, read_revoked
from walktalk.runtimes.peers.identity.handshake import next_life
from walktalk.runtimes.peers.node.checkpoints import Checkpoints, Kept
from walktalk.runtimes.peers.node.event_log import parts_in, read_lines
from walktalk.runtimes.peers.node.models import PrivacyBudget, read_spent
from walktalk.runtimes.peers.node.reports import EventLog
from walktalk.runtimes.peers.node.roster import MEMBERS_FILE, Entry, Roster, as_text, from_text
from walktalk.testing.chaos.power import DurableCopy, restore
from walktalk.transforms.rules import Privacy


class PowerCut(BaseException):
    """The machine is off."""


def with_every_cut(
    tmp_path: Path, begin: Callable[[Path], None], work: Callable[[Path], None], holds: Callable[[Path, bool], None]
) -> int:
    """Do some work again and again, each time with the power cut one moment later; returns how many moments there were.

    - `begin`: makes the folder in which the work is done.
    - `holds`: asserts what must be true of what is left; told whether the work had been done before the cut.
    """
    for moment in itertools.count():
        folder, after = tmp_path / f"{moment}", tmp_path / f"{moment}-after"
        folder.mkdir()
        begin(folder)
        disk, left = DurableCopy(folder, tmp_path / f"{moment}-disk"), [moment]

        def point(what: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise PowerCut(what)

        done = True
        try:
            with disk.watched(point):
                work(folder)
        except PowerCut:
            done = False
        for renamed in (False, True):
            if renamed:
                disk.names_of_now()
            restore(tmp_path / f"{moment}-disk", after)
            holds(after, done)
        disk.close()
        for path in (folder, after, tmp_path / f"{moment}-disk"):
            shutil.rmtree(path)
        if done:
            return moment
    raise AssertionError


def test_a_file_is_that_of_before_or_the_new_one(tmp_path: Path) -> None:
    def holds(folder: Path, done: bool) -> None:
        found = (folder / "deep" / "file").read_text() if (folder / "deep" / "file").exists() else ""
        assert found in (("new",) if done else ("", "new"))

    assert (
        with_every_cut(tmp_path, lambda folder: None, lambda folder: write_text(folder / "deep" / "file", "new"), holds)
        > 5
    )


def test_what_is_not_forced_to_the_disk_is_lost(tmp_path: Path) -> None:
    """The instrument itself: a plain write and a rename are not enough."""

    def careless(folder: Path) -> None:
        (folder / "part").write_text("new")
        (folder / "part").replace(folder / "file")

    def holds(folder: Path, done: bool) -> None:
        assert not (folder / "file").exists() or not (folder / "file").read_text()

    with_every_cut(tmp_path, lambda folder: None, careless, holds)


class AtOnce:
    """A thread that does all when it is started, so that the power can fail in the midst of it."""

    def __init__(self, target: Callable[..., None], args: tuple[object, ...] = (), **more: object) -> None:
        self.start = partial(target, *args)


def test_a_checkpoint_is_whole_and_its_event_log_reaches_as_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("walktalk.runtimes.peers.node.reports.threading.Thread", AtOnce)

    def kept(number: int) -> Kept:
        return Kept({"own": torch.full((50,), float(number))}, {}, number, 8 * number, number)

    def work(folder: Path) -> None:
        log = EventLog(folder, 7, part_bytes=400)
        checkpoints = Checkpoints(folder, before=log.sync)
        try:
            for number in (1, 2):
                for _ in range(5):
                    log.write(TraceRow(float(number), 0, "trained"))
                log.write(TraceRow(float(number), 0, "saved", number=number))
                assert checkpoints.save(kept(number))
        finally:
            log.close()

    def holds(folder: Path, done: bool) -> None:
        path = folder / "checkpoint.safetensors"
        if not path.exists():
            assert not done
            return
        tensors, facts = load_checkpoint(path)
        assert facts["number"] == 2 or not done
        assert tensors["own"].tolist() == [facts["number"]] * 50
        rows = [row for parts in parts_in(folder).values() for row in read_lines(parts)]
        saved = [row.number for row in rows if row.event == "saved"]
        assert saved[: facts["number"]] == list(range(1, facts["number"] + 1))
        assert sum(row.event == "trained" for row in rows) >= 5 * facts["number"]

    assert with_every_cut(tmp_path, lambda folder: None, work, holds) > 20


def test_a_roster_a_life_and_a_budget_never_go_back(tmp_path: Path) -> None:
    privacy = Privacy(clip=1.0, noise=1.0, delta=1e-5)
    told: dict[str, int] = {}

    def begin(folder: Path) -> None:
        told.clear()
        write_text(folder / "life", "5\n")

    def work(folder: Path) -> None:
        told["life"] = next_life(folder)
        budget = PrivacyBudget(folder, privacy)
        for count in range(1, 20):
            if budget.spend():
                told["spent"] = count  # now it is let out
        roster = Roster("test", graphs.cycle(3), ("a", "b", "c"))
        roster.join([Entry("new", 9, 0, "h:1", ("a", "b"), by="new", rank=1)])
        write_text(folder / MEMBERS_FILE, as_text(roster.entries))
        told["roster"] = 1

    def holds(folder: Path, done: bool) -> None:
        life = int((folder / "life").read_text())
        assert life >= told.get("life", 5)
        spent = sum(count for _, count in read_spent(folder / "spent.json"))
        assert spent >= told.get("spent", 0)
        path = folder / MEMBERS_FILE
        entries = from_text(path.read_text()) if path.exists() else []
        assert len(entries) >= told.get("roster", 0)

    assert with_every_cut(tmp_path, begin, work, holds) > 15


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    make_certificates(folder, {"a": (), "b": ()})
    return folder


def test_a_revocation_that_was_said_stays_and_the_list_is_never_half(home: Path, tmp_path: Path) -> None:
    def begin(folder: Path) -> None:
        shutil.copytree(home, folder, dirs_exist_ok=True)
        revoke_certificates(open_authority(folder), "a")

    def holds(folder: Path, done: bool) -> None:
        revoked = read_revoked(folder, certificates_in(folder / "ca.pem"))
        assert set(revoked.names) in (({"a", "b"},) if done else ({"a"}, {"a", "b"}))

    assert with_every_cut(tmp_path, begin, lambda folder: revoke_certificates(open_authority(folder), "b"), holds) >= 4
    assert not (home / REVOKED_FILE).exists()


@pytest.mark.parametrize("new_key", [False, True])
def test_a_node_has_a_certificate_and_the_key_of_it_at_every_moment_of_a_renewal(
    new_key: bool, home: Path, tmp_path: Path
) -> None:
    def work(folder: Path) -> None:
        if new_key:
            path, _ = request_certificate(folder, "a", new_key=True)
            sign_request(open_authority(folder), path, {"a": ()}, 100)
        else:
            make_certificates(folder, {"a": ()}, days=100)

    def holds(folder: Path, done: bool) -> None:
        credentials(folder, "a")
        open_authority(folder)
        assert done == (certificates_in(folder / "a.pem")[0] != certificates_in(home / "a.pem")[0]) or not done

    copy = lambda folder: shutil.copytree(home, folder, dirs_exist_ok=True)  # noqa: E731
    assert with_every_cut(tmp_path, copy, work, holds) > 8


def test_a_new_authority_is_whole_or_can_be_made_again(tmp_path: Path) -> None:
    def holds(folder: Path, done: bool) -> None:
        try:
            credentials(folder, "a")
        except UserError:
            assert not done
            make_certificates(folder, {"a": ()})
            credentials(folder, "a")

    assert with_every_cut(tmp_path, lambda folder: None, lambda folder: make_certificates(folder, {"a": ()}), holds) > 8


def test_a_checkpoint_over_another_is_one_of_the_two(tmp_path: Path) -> None:
    def save(folder: Path, value: float) -> None:
        save_checkpoint(folder / "c", {"x": torch.tensor([value])}, {"value": value})

    def holds(folder: Path, done: bool) -> None:
        tensors, facts = load_checkpoint(folder / "c")
        assert float(tensors["x"]) == facts["value"]
        assert facts["value"] == 2.0 or not done

    with_every_cut(tmp_path, lambda folder: save(folder, 1.0), lambda folder: save(folder, 2.0), holds)
