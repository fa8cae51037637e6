"""Make the pages of the site that are not written by hand; a hook of mkdocs.yml.

The home page is README.md; the references come from the parsers of the command line, the options of
the layers and the docstrings. llms.txt lists all pages with their subjects.
"""

from __future__ import annotations

import argparse
import html
import posixpath
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from engine import cli  # noqa: E402
from engine.cli.layers import sections  # noqa: E402

# Pages outside docs/: where they come from, and where they are in the site.
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "examples.md",
}
# The modules whose public names have an entry in the Python reference.
MODULES = (
    ("engine", "Load a network, call it, read its results."),
    ("engine.ops", "Single convolutions as functions of arrays."),
    ("engine.compat.cv2_dnn", "cv2.dnn's functions, for scripts written for OpenCV."),
    ("engine.compat.darknet", "darknet.py's functions, for scripts written for darknet."),
    ("engine.compat.ultralytics", "ultralytics' YOLO class, for scripts written for it."),
)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
IMAGE = re.compile(r'(<img src=")([^"]+)"')


def on_files(files: Files, config: MkDocsConfig) -> Files:
    pages = {site: (ROOT / source).read_text(encoding="utf-8") for source, site in OUTSIDE.items()}
    pages["examples.md"] += "".join(_examples())
    pages["reference/python.md"] = python_reference()
    pages["reference/command-line.md"] = command_line_reference()
    pages["reference/layers.md"] = layer_reference()
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at pages of the site, or into the repository."""
    here = page.file.src_uri
    origins = {site: source for source, site in OUTSIDE.items()}
    source = origins.get(here, f"docs/{here}")

    def target(link: str) -> str | None:
        """Return the link as seen from this page; None if the site has no such file."""
        if re.match(r"\w+:|//|#", link):
            return link
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
        inside = OUTSIDE.get(path) or path.removeprefix("docs/")
        if files.get_file_from_path(inside) and (path in OUTSIDE or path.startswith("docs/")):
            return posixpath.relpath(inside, posixpath.dirname(here) or ".")
        return f"{config.repo_url.rstrip('/')}/blob/main/{path}" if config.repo_url else None

    def relinked(found: re.Match[str]) -> str:
        mark, text, link, anchor = found.groups()
        there = target(link)
        return f"{mark}[{text}]({there}{anchor or ''})" if there else text

    parts = re.split(r"(```.*?```)", markdown, flags=re.DOTALL)
    for at in range(0, len(parts), 2):  # not inside code
        parts[at] = LINK.sub(relinked, parts[at])
        parts[at] = IMAGE.sub(lambda found: f'{found[1]}{target(found[2])}"', parts[at])
    return "".join(parts)


def on_post_build(config: MkDocsConfig) -> None:
    """Write llms.txt: the list of pages for programs that read."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for section in config.nav or ():
        for heading, entries in section.items():
            lines += [f"## {heading}", ""] if isinstance(entries, list) else []
            named = entries if isinstance(entries, list) else [{heading: entries}]
            for entry in named:
                ((title, path),) = entry.items()
                lines.append(
                    f"- [{title}]({path.replace('README', 'index').removesuffix('.md')}.html)"
                )
            lines.append("")
    Path(config.site_dir, "llms.txt").write_text("\n".join(lines), encoding="utf-8")


# ------------------------------------------------------------ references


def public_names(module: str) -> list[str]:
    names: list[str] = sorted(import_module(module).__all__, key=str.lower)
    return [name for name in names if name not in ("ops", "__version__")]


def python_reference() -> str:
    lines = ["# Python", ""]
    for module, about in MODULES:
        lines += [f"## {module}", "", about, ""]
        for name in public_names(module):
            value = getattr(import_module(module), name)
            if callable(value):  # the others are plain numbers with OpenCV's names
                where = f"{value.__module__}.{value.__name__}"
                lines += [f"::: {where}", "    options: {heading_level: 3}", ""]
    return "\n".join(lines)


def command_line_reference() -> str:
    lines = ["# Command line", "", "`engine` and `python -m engine` are the same program.", ""]
    for command in cli.commands():
        parser = cli.parser_of(command)
        about = (parser.description or "").strip().replace("[", r"\[")
        lines += [f"## {command}", "", about, ""]
        lines += ["```text", parser.format_usage().strip(), "```", ""]
        lines += _options(parser)
    return "\n".join(lines)


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for each in _parsers(parser):
        if each is not parser:
            yield from (f"### {each.prog.removeprefix('python -m engine ')}", "")
        yield from ("| option | meaning |", "| --- | --- |")
        for action in each._actions:
            if action.help == argparse.SUPPRESS or isinstance(action, argparse._SubParsersAction):
                continue
            yield f"| {_cell(_name(action))} | {_cell(_help(each, action), is_code=False)} |"
        yield ""


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in dict.fromkeys(action.choices.values()):
                yield from _parsers(each)


def _name(action: argparse.Action) -> str:
    value = action.metavar or (action.choices and "|".join(map(str, action.choices)))
    value = value or action.dest.upper()
    if isinstance(value, tuple):
        value = " ".join(value)
    if not action.option_strings:
        return str(value)
    return ", ".join(action.option_strings) + (f" {value}" if action.nargs != 0 else "")


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return parser._get_formatter()._expand_help(action) if action.help else ""


def _cell(text: str, *, is_code: bool = True) -> str:
    text = html.escape(" ".join(text.split()), quote=False)
    for mark in "|*_`[":  # a [b] after an [a] would be a link
        text = text.replace(mark, f"&#{ord(mark)};")
    return f"<code>{text}</code>" if is_code else text


def layer_reference() -> str:
    lines = ["# Layers of a .cfg", "", "Each section with its options and their defaults.", ""]
    for names, options in sections():
        lines += [f"## [{names[0]}]", ""]
        if len(names) > 1:
            lines += [f"Also written {', '.join(f'[{name}]' for name in names[1:])}.", ""]
        if options:
            lines += ["| option | default |", "| --- | --- |"]
            lines += [f"| `{name}` | {_cell(default)} |" for name, default in options]
            lines.append("")
    return "\n".join(lines)


def _examples() -> Iterator[str]:
    for path in sorted((ROOT / "examples").glob("*.py")):
        code = path.read_text(encoding="utf-8")
        yield f"\n## {path.name}\n\n```python\n{code}```\n"
