"""`walktalk doctor`: does everything work here, and what is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from walktalk.doctor import Finding

SIGNS = {"good": ("✓", "green"), "absent": ("–", "yellow"), "bad": ("✗", "bold red")}
SOMETHING_IS_BAD = 1


def doctor(
    config: Annotated[
        Path | None, typer.Option(metavar="CLUSTER.yaml", help="Look at this cluster's ports and certificates, too.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Look at Python, torch, device, extras, data, ports and certificates; exit code 1 where something will not work.

    What is merely absent, such as an extra or a data set, is no reason for that.
    """
    from dataclasses import asdict

    from walktalk.doctor import checkup

    findings = []
    for finding in checkup(Path.cwd(), config):
        findings.append(finding)
        if not as_json:
            _show(finding)
    bad = [finding for finding in findings if finding.state == "bad"]
    if as_json:
        content = {"ok": not bad, "findings": [asdict(finding) for finding in findings]}
        typer.echo(json.dumps(content, indent=2, ensure_ascii=False))
    else:
        typer.echo(f"\n{len(bad)} will not work" if bad else "\nReady: walktalk run smoke")
    if bad:
        raise typer.Exit(SOMETHING_IS_BAD)


def _show(finding: Finding) -> None:
    from rich.console import Console
    from rich.text import Text

    sign, style = SIGNS[finding.state]
    line = Text.assemble((sign, style), " ", (f"{finding.about:18}", "bold"), " ", finding.said)
    console = Console()
    console.print(line, soft_wrap=True)
    if finding.remedy:
        console.print(Text(f"{'':21}→ {finding.remedy}", style="dim"), soft_wrap=True)
