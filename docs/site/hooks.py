"""Pages that lie elsewhere in the repository, or follow from the program itself, as part of the site.

README files, results and the like are written to be read in the repository; on the site they are under `project/`, at
the same places relative to each other. A link that leaves `docs/` is led there, and one to a file that is not a page,
such as a script, becomes its name. A link to something that does not exist is a warning, and so ends a strict build.
"""

from __future__ import annotations

import logging
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?\)")
PAGES = (
    "ARCHITECTURE.md",
    "REPRODUCTION.md",
    "BENCHMARKS-PUBLISHED.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "CODE_OF_CONDUCT.md",
)
SHIM = "https://unpkg.com/iframe-worker/shim"  # what the theme would fetch to make its search work from a folder
ELSEWHERE = {"Optimizer", "StudySpec", "__version__"}  # OptimizerSpec by its own name; the keys of a study
log = logging.getLogger("mkdocs.hooks.walktalk")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what lies outside `docs`, and the page of commands."""
    pages = [ROOT / name for name in PAGES]
    pages += [
        ROOT / "benchmarks" / "README.md",
        *(ROOT / "reproduction" / name for name in ("README.md", "DETAILS.md")),
        *sorted(ROOT.glob("results/**/*.md")),
    ]
    pictures = {picture for page in pages for picture in _pictures(page)}
    for path in (*pages, *sorted(pictures)):
        where = f"project/{path.relative_to(ROOT).as_posix()}"
        files.append(File.generated(config, where, abs_src_path=str(path)))
    files.append(File.generated(config, "commands.md", content=_commands()))
    files.append(File.generated(config, "api/more.md", content=_more()))
    return files


def _pictures(page: Path) -> Iterator[Path]:
    for picture, _, target, _ in LINK.findall(page.read_text(encoding="utf-8")):
        if picture and (page.parent / target).is_file():
            yield (page.parent / target).resolve()


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links that leave `docs` to where their target is on the site."""
    where = page.file.src_uri
    home = where.removeprefix("project/") if where.startswith("project/") else f"docs/{where}"

    def led(link: re.Match[str]) -> str:
        picture, text, target, part = link.groups()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(home), target))
        if not (ROOT / path).exists():
            if posixpath.normpath(posixpath.join(posixpath.dirname(where), target)) in known:  # made by this file
                return link[0]
            log.warning("%s links to %s, which does not exist", where, target)
            return link[0]
        on_site = path.removeprefix("docs/") if path.startswith("docs/") else f"project/{path}"
        if on_site not in known and f"{on_site}/README.md" in known:
            on_site = f"{on_site}/README.md"
        if on_site not in known:
            return text if text.startswith("`") else f"{text} (`{path}`)" if text != path else f"`{path}`"
        return f"{picture}[{text}]({os.path.relpath(on_site, posixpath.dirname(where) or '.')}{part or ''})"

    known = {file.src_uri for file in files}
    return LINK.sub(led, markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """The site asks nobody else for anything: that script lies beside this file. 404.html, too, which is no page."""
    site = Path(config.site_dir)
    for path in site.rglob("*.html"):
        own = os.path.relpath(site / "site" / "iframe-worker.js", path.parent)
        path.write_text(path.read_text(encoding="utf-8").replace(SHIM, own), encoding="utf-8")


def _commands() -> str:
    """Every command with its options, as `--help` has them."""
    import typer

    from walktalk.cli import app

    root: Any = typer.main.get_command(app)
    lines = [
        "# Commands",
        "",
        "Every command says the same with `--help`. Exit codes: 0 done, 1 a check failed, 2 a mistake in what was "
        "asked for, 130 stopped by Ctrl-C. `walktalk --install-completion` teaches your shell.",
        "",
    ]
    for name, command in root.commands.items():
        for path, one in _leaves(f"walktalk {name}", command):
            lines += [f"## {path}", "", *_described(path, one)]
    return "\n".join(lines)


def _more() -> str:
    """What the package offers and no page of the reference has yet: nothing is left out because it is new."""
    import walktalk

    pages = "".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs" / "api").glob("*.md")))
    listed = {name.rpartition(".")[2] for name in re.findall(r"^::: (\S+)", pages, re.MULTILINE)}
    modules = {name for name in walktalk.__all__ if isinstance(getattr(walktalk, name), ModuleType)}
    new = [name for name in walktalk.__all__ if name not in listed | modules | ELSEWHERE]
    said = (
        "All that the package offers beside what the other pages have."
        if new
        else "Nothing: the other pages have it all."
    )
    return "\n".join(["# More", "", said, "", *(f"::: walktalk.{name}" for name in new)])


def _leaves(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Everything that does something by itself: `walktalk certs` does, beside `walktalk certs sign`."""
    if not getattr(command, "commands", None) or command.invoke_without_command:
        yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _leaves(f"{path} {name}", inner)


def _described(path: str, command: Any) -> Iterator[str]:
    options = [one for one in command.params if one.param_type_name == "option" and one.name != "help"]
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    words = [(one.metavar or one.name.upper()).replace("[", "").replace("]", "") for one in arguments]
    marked = [word if one.required else f"[{word}]" for word, one in zip(words, arguments, strict=True)]
    yield from (
        command.help or "",
        "",
        "```",
        " ".join([path, *marked, *(["[OPTIONS]"] if options else [])]),
        "```",
        "",
    )
    if not command.params:
        return
    yield from ("| argument or option | meaning |", "| --- | --- |")
    for word, one in zip(words, arguments, strict=True):
        yield f"| `{word}` | {one.help or ''}{_default(one)} |"
    for one in options:
        value = "" if one.is_flag else f" {one.metavar or one.name.upper()}".replace("|", "&#124;")
        yield f"| <code>{', '.join(one.opts)}{value}</code> | {one.help or ''}{_default(one)} |"
    yield ""


def _default(one: Any) -> str:
    plain = one.default is None or one.default is False or callable(one.default) or one.default in ((), [], "")
    return "" if plain else f" Default: `{getattr(one.default, 'value', one.default)}`."
