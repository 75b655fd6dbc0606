"""Where a system is no Unix, simulator, theory, pages and commands work, and real nodes say that they do not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WITHOUT = """
# A Unix without what only a Unix has. What Python's own library took of it before stays: there it is another one.
import asyncio, importlib.abc, multiprocessing.util, os, shutil, signal, socket, subprocess, sys, tempfile

GONE = {"resource", "fcntl", "pwd", "grp", "termios", "tty", "pty", "syslog"}

class Nowhere(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in GONE:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in GONE:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Nowhere())
SIGNALS = "HUP KILL STOP CONT TSTP USR1 USR2 QUIT ALRM CHLD PIPE WINCH"
for name in [*(f"SIG{one}" for one in SIGNALS.split()), "pthread_kill", "pthread_sigmask", "sigwait", "setitimer"]:
    delattr(signal, name)
for name in (
    "fork forkpty getuid geteuid getgid getegid setsid getpgid killpg chown fchown fchmod sched_getaffinity "
    "sched_setaffinity mkfifo getpriority nice getloadavg wait3 wait4 O_DIRECTORY O_NOFOLLOW O_CLOEXEC O_NONBLOCK"
).split():
    delattr(os, name)
"""
TRIAL = """
import walktalk as wt
from typer.testing import CliRunner
from walktalk.cli.app import app

def said(*args):
    done = CliRunner().invoke(app, [*args])
    return done.exit_code, done.output + str(done.exception or "")

code, text = said("--help")
assert code == 0 and "presets" in text, text
code, text = said("theory", "--topology", "cycle", "--nodes", "6")
assert code == 0 and "gossip" in text, text
task = wt.tasks.digits(nodes=3, alpha=1.0, seed=0)
run = wt.train(task, wt.MultiWalk(walks=1), wt.graphs.complete(3), stop=wt.Stop(iterations=4), seed=0)
assert run.history["iteration"].max() == 4
code, text = said("run", "smoke", "--set", "repetitions=1", "--set", "stop.iterations=4", "--out", "study")
assert code == 0, text
code, text = said("node", "--config", "cluster.yaml", "--name", "a")
assert code != 0 and "real nodes run on Linux only" in text, text
print("all of it")
"""


def test_simulations_and_the_command_line_need_no_unix(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT + TRIAL], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "all of it\n"
    assert (tmp_path / "study" / "report.html").exists()
