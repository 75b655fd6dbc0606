"""YAML as people write it: `1e-4` is a number, a key that comes twice is a mistake, and errors name the line."""

from __future__ import annotations

import re
from os import PathLike
from pathlib import Path
from typing import Any

import yaml

from walktalk.core.errors import SpecError
from walktalk.core.untrusted import shown

LARGEST = 1 << 20  # characters of a text
DEEPEST = 64  # lists and mappings in one another
TOO_DEEP = f"lists or mappings in one another: at most {DEEPEST} are possible"
MOST = 100_000  # values, where what an alias stands for counts wherever it stands


class _Loader(yaml.SafeLoader):
    """Reads plain values, in limits. YAML 1.1 asks for a dot in `1.0e-4`; YAML 1.2 and everybody else do not."""

    depth = 0

    def fetch_flow_collection_start(self, kind: Any) -> None:
        """An opening bracket; thousands of them would be read on, ever slower, before the first value is made."""
        if self.flow_level >= DEEPEST:
            raise yaml.scanner.ScannerError(None, None, TOO_DEEP, self.get_mark())
        super().fetch_flow_collection_start(kind)

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose one value and all that is in it, no deeper than anybody writes."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise yaml.composer.ComposerError(None, None, TOO_DEEP, self.get_mark())
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def get_single_node(self) -> yaml.Node | None:
        """The whole text, if it is no more than it looks: a few aliases of aliases can stand for billions of values."""
        node = super().get_single_node()
        if node is not None:
            _values(node, {})
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """The value of a node; what cannot be, such as a thirteenth month, is said with its place."""
        try:
            return super().construct_object(node, deep)
        except yaml.YAMLError:
            raise
        except Exception as error:
            kind = node.tag.rpartition(":")[2]
            problem = f"{shown(node.value, 40)} is no {kind}: {shown(error)}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error


def _values(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values a node stands for, aliases written out."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) in known:
        number = known[id(node)]
    else:
        known[id(node)] = MOST + 1  # in case it is in itself
        inside = [one for pair in node.value for one in (pair if isinstance(pair, tuple) else (pair,))]
        number = known[id(node)] = 1 + sum(_values(one, known) for one in inside)
    if number > MOST:
        raise yaml.composer.ComposerError(None, None, f"more than {MOST:,} values", node.start_mark)
    return number


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d[\d_]*\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+0123456789.")
)


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is not a text", key_node.start_mark)
        if key in seen:
            raise yaml.constructor.ConstructorError(None, None, f"key {key!r} comes twice", key_node.start_mark)
        seen.add(key)
    return dict(loader.construct_mapping(node, deep=True))


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def parse(text: str, origin: str) -> Any:
    """What the text says; a `SpecError` with the line if it is not YAML, or more than anybody writes."""
    if len(text) > LARGEST:
        raise SpecError(f"{origin}: {len(text):,} characters of YAML; at most {LARGEST:,} are possible")
    try:
        return yaml.load(text, Loader=_Loader)  # a SafeLoader: makes plain values only
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise SpecError(f"{origin}{where}: not valid YAML: {problem}") from error


def read(path: str | PathLike[str]) -> dict[str, Any]:
    """The mapping in a file; an empty file is an empty mapping."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: cannot be read: not a text file; give a YAML file") from error
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}") from error
    return as_mapping(parse(text, str(path)), str(path))


def as_mapping(content: Any, origin: str) -> dict[str, Any]:
    """The content, if it is a mapping."""
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SpecError(f"{origin}: should hold key: value pairs, but is a {type(content).__name__}")
    return content


class _Dumper(yaml.SafeDumper):
    """No anchors: a list that is used twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def dump(content: dict[str, Any]) -> str:
    """The mapping as YAML: innermost lists and mappings on one line, in the order given."""
    options: dict[str, Any] = {"sort_keys": False, "default_flow_style": None, "allow_unicode": True, "width": 1000}
    return str(yaml.dump(content, Dumper=_Dumper, **options))
