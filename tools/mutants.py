"""A mutation run of one room: its code changed in one place after the other, and whether any test notices.

    make mutants ROOM=ledger [MOST=200]

By mutmut (3), in an environment of its own under build/, on a copy of what git knows. What was done is kept there, so a
run that was stopped goes on; `make mutants ROOM=ledger AGAIN=1` begins anew. Survivors that change nothing that anybody
could see are in tools/survivors.txt, each with its reason; they count as killed. The last line says how many of a
hundred are, and the exit status is 1 below 90.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
SURVIVORS = Path(__file__).with_name("survivors.txt")
ENOUGH = 90.0  # of a hundred
ROOMS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # what is changed, and the tests that should notice
    "ledger": (("runtimes/peers/operations/ledger.py",), ("tests/peers/test_chaos_parts.py",)),
    "wire": (("runtimes/peers/wire/messages.py",), ("tests/peers/test_wire.py",)),
    "tally": (
        ("runtimes/peers/node/tally.py",),
        ("tests/peers/test_signed_statements.py", "tests/peers/test_expiry.py"),
    ),
    "verdicts": (("studies/results/summary.py",), ("tests/studies/test_summary.py", "tests/studies/test_deciding.py")),
    "rings": (("protocols/mechanisms/rings.py",), ("tests/protocols/test_rings.py",)),
    "semantics": (("runtimes/semantics",), ("tests/runtimes", "tests/protocols/test_conformance.py")),
    "simulator": (("runtimes/simulator",), ("tests/runtimes", "tests/studies/test_forecast.py")),
    "records": (("records",), ("tests/records",)),
    "protocols": (("protocols",), ("tests/protocols",)),
    "theory": (("theory",), ("tests/theory",)),
    "advisor": (("advisor",), ("tests/advisor",)),
}
SETUP = """[mutmut]
paths_to_mutate={mutated}
tests_dir={tests}
also_copy=
    src
    tests
    pyproject.toml
    setup.py
    README.md
    docs
    examples
    tools
pytest_add_cli_args=
    -q
    -p
    no:cacheprovider
    -m
    not slow
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("room", choices=tuple(ROOMS))
    parser.add_argument("--mutmut", type=Path, required=True, help="the command, of the environment that has it")
    parser.add_argument("--most", type=int, default=0, help="so many mutants, drawn by a fixed seed; 0: all")
    parser.add_argument("--again", action="store_true", help="begin anew")
    args = parser.parse_args()
    place = HERE / "build" / "mutants" / args.room
    if args.again:
        shutil.rmtree(place, ignore_errors=True)
    if not place.is_dir():
        copy(place)
    mutated, tests = ROOMS[args.room]
    paths = "\n    ".join(("", *(f"src/walktalk/{path}" for path in mutated)))
    (place / "setup.cfg").write_text(SETUP.format(mutated=paths, tests="\n    ".join(("", *tests))), encoding="utf-8")
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "OMP_NUM_THREADS": "1"
    }
    run = [str(args.mutmut), "run", "--max-children", str(os.cpu_count() or 1)]
    if args.most:
        listed(args.mutmut, place, surroundings)
        every = sorted(outcomes(place))
        run += random.Random(0).sample(every, min(args.most, len(every)))
    subprocess.run(run, cwd=place, env=surroundings, check=False)
    return judged(outcomes(place))


def copy(place: Path) -> None:
    """What git knows, as it is now."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=HERE, capture_output=True, check=True).stdout.decode()
    wanted = ("src/", "tests/", "docs/", "examples/", "tools/", "pyproject.toml", "setup.py", "README.md")
    for name in names.split("\0"):
        if name.startswith(wanted) and (HERE / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(HERE / name, place / name)


def listed(mutmut: Path, place: Path, surroundings: dict[str, str]) -> None:
    """Make the mutants without running them: a name that no mutant has runs none."""
    subprocess.run([str(mutmut), "run", "none.such*"], cwd=place, env=surroundings, check=False, capture_output=True)


def outcomes(place: Path) -> dict[str, int | None]:
    """What pytest ended with for each mutant; None where it was not run."""
    found: dict[str, int | None] = {}
    for file in sorted(place.glob("mutants/**/*.meta")):
        found |= json.loads(file.read_text(encoding="utf-8"))["exit_code_by_key"]
    return found


def judged(found: dict[str, int | None]) -> int:
    """Says who survived, and how many of a hundred did not; the exit status."""
    lines = SURVIVORS.read_text(encoding="utf-8").splitlines() if SURVIVORS.is_file() else []
    excused = {line.split()[0] for line in lines if line.strip() and not line.startswith("#")}
    run = {name: code for name, code in found.items() if code is not None}
    alive = sorted(name for name, code in run.items() if code in (0, 5, 33) and name not in excused)
    for name in alive:
        print(f"alive: {name}" + (" (no test comes there)" if run[name] == 33 else ""))
    share = 100.0 * (1 - len(alive) / len(run)) if run else 0.0
    print(f"{share:.1f} of 100 killed: {len(run) - len(alive)} of {len(run)}; {len(found) - len(run)} were not run")
    return 0 if share >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
