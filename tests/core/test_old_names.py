"""Every name of walktalk 0.1 that has changed still works, and says in one line, at the caller's, what it is called."""

import importlib
import sys
import warnings

import pytest

import walktalk as wt
from walktalk.core import old_names
from walktalk.core.old_names import MODULES, NAMES
from walktalk.protocols import PROTOCOLS, Machine
from walktalk.testing import simulated

CHANGED = [(door, name, new) for door, names in NAMES.items() for name, new in names.items()]

# Where 0.1's pages of its API said that something is.
ADDRESSES = {
    "walktalk.chains.metropolis_hastings:metropolis_hastings": "walktalk.chains",
    "walktalk.chains.return_time:return_time": "walktalk.chains",
    "walktalk.graphs.cycle:cycle": "walktalk.graphs",
    "walktalk.graphs.edge_list:edge_list": "walktalk.graphs",
    "walktalk.graphs.us_five_sites:us_five_sites": "walktalk.graphs",
    "walktalk.learning.tasks.digits:digits": "walktalk.learning.tasks",
    "walktalk.learning.tasks.cifar10:cifar10": "walktalk.learning.tasks",
    "walktalk.plots.curves:curves": "walktalk.report.figures",
    "walktalk.plots.failures:failures": "walktalk.report.figures",
    "walktalk.plots.partition:partition": "walktalk.report.figures",
    "walktalk.testing.check_protocol:check_protocol": "walktalk.testing",
    "walktalk.theory.network:network": "walktalk.theory",
}


@pytest.fixture
def lines():
    """The warnings of the test so far, all of them, whatever was seen before."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield seen


def forget(module):
    """As if no one had imported it under its old name."""
    for name in [one for one in sys.modules if one == module or one.startswith(f"{module}.")]:
        del sys.modules[name]
    door, _, name = module.rpartition(".")
    vars(sys.modules[door]).pop(name, None) if door in sys.modules else None


def said(lines):
    """The one line, with where it points to."""
    assert [one.category for one in lines] == [FutureWarning], [str(one.message) for one in lines]
    return str(lines[0].message), lines[0].filename


@pytest.mark.parametrize("old", MODULES)
def test_a_moved_module_is_found_under_its_old_name(old, lines):
    importlib.import_module(old.rpartition(".")[0])
    forget(old)
    lines.clear()
    found = importlib.import_module(old)
    message, where = said(lines)
    assert found is sys.modules[MODULES[old]]
    assert found.__name__ == MODULES[old]
    assert f"{old} is now {MODULES[old]};" in message
    assert where == __file__


@pytest.mark.parametrize(("door", "name", "new"), CHANGED, ids=[f"{door}.{name}" for door, name, _ in CHANGED])
def test_a_front_door_has_its_old_names(door, name, new, lines):
    package = importlib.import_module(door)
    vars(package).pop(name, None)  # it stays there once it has been imported as a module
    lines.clear()
    found = getattr(package, name)
    message, where = said(lines)
    module, _, now = new.partition(":")
    assert f"{door}.{name} is now {module}.{now};" in message
    assert where == __file__
    if f"{door}.{name}" not in old_names._MADE:
        assert found is getattr(importlib.import_module(module), now)


@pytest.mark.parametrize(("address", "door"), ADDRESSES.items())
def test_the_addresses_on_the_pages_of_the_api_are_found(address, door, lines):
    module, _, name = address.partition(":")
    forget(module)
    exec(f"from {module} import {name} as found", names := {})
    offered = getattr(importlib.import_module(door), name)
    assert names["found"] is offered


def test_what_lies_below_a_moved_package_is_not_loaded_twice():
    forget("walktalk.plots")
    below = importlib.import_module("walktalk.plots.style")
    assert below is sys.modules["walktalk.report.figures.style"]


def test_an_old_import_points_to_the_line_that_has_it(tmp_path, lines):
    forget("walktalk.protocols.rounds")
    path = tmp_path / "theirs.py"
    path.write_text("\n\nfrom walktalk.protocols.rounds import FedAvg\n")
    exec(compile(path.read_text(), str(path), "exec"), {"__name__": "theirs"})
    assert (lines[0].filename, lines[0].lineno) == (str(path), 3)


def test_a_name_that_never_was_is_no_old_name(lines):
    with pytest.raises(ModuleNotFoundError, match=r"walktalk\.protocols\.nothing"):
        importlib.import_module("walktalk.protocols.nothing")
    with pytest.raises(AttributeError, match="nothing"):
        wt.nothing  # noqa: B018
    assert not lines


def test_what_is_said_in_another_form_now_is_made_as_it_was(lines):
    aliases, proved = importlib.import_module("walktalk.protocols").ELSEWHERE, wt.theory.PROVED
    assert (aliases["d_psgd"], aliases["gossip"], aliases["fedadam"]) == ("sync_gossip", "async_gossip", "fedopt")
    assert proved["d2"] == PROTOCOLS["d2"].proved
    assert "walkman" not in proved
    candidate = type("Candidate", (), {"protocol": wt.MultiWalk(walks=4)})
    assert importlib.import_module("walktalk.advisor").name_of(candidate) == "4 walks"


def test_told_is_still_progress(lines):
    with pytest.raises(wt.UserError, match="objective"):
        wt.advise(wt.tasks.digits(nodes=4), wt.graphs.cycle(4), objective="nothing", told=print)
    assert "told is now progress" in said(lines)[0]


def test_a_blow_is_still_an_outage(tmp_path, lines):
    graph, stop = wt.graphs.cycle(4), wt.Stop(iterations=20)
    old = simulated(wt.AsyncGossip(), graph, stop, tmp_path, blow=wt_outage())
    assert "simulated: blow is now outage" in said(lines)[0]
    assert old.trace == simulated(wt.AsyncGossip(), graph, stop, tmp_path, outage=wt_outage()).trace


def wt_outage():
    """A node that is away for a moment."""
    return importlib.import_module("walktalk.testing").Outage(at=0.02, node=1, seconds=0.05)


def test_hardened_is_still_the_resilient_form(lines):
    class Theirs(wt.Protocol):
        """A protocol that was written for walktalk 0.1."""

        def machine(self, network_view):
            return Machine()

        def hardened(self):
            return "the form that survives"

    message, where = said(lines)
    assert "Theirs.hardened is now Theirs.resilient_form" in message
    assert where == __file__
    assert Theirs().resilient_form() == "the form that survives"

    lines.clear()
    assert wt.MultiWalk().hardened() == wt.MultiWalk().resilient_form()
    assert "Protocol.hardened is now Protocol.resilient_form" in said(lines)[0]
