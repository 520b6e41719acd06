"""Hooks of MkDocs: pages made from files outside docs/, and links that work in the repository and on the site.

CHANGELOG.md, CONTRIBUTING.md, benchmarks/README.md and the programs in examples/ become pages of the site. A link to
one of these files, written relative to the file that contains it, is replaced by a link to the page. The page of the
command line receives the help text of every command.
"""

import ast
import posixpath
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import typer.core
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typer.main import get_command

ROOT = Path(__file__).parents[1]
COPIED = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks.md",
}
"""Files of the repository that are pages of the site, and the names of these pages."""
EXAMPLES = "examples.md"
EXAMPLES_INTRODUCTION = """The programs in the folder `examples`. The tests run every one of them.
`python -m docs_build.example_figures` runs them and draws the pictures: the test accuracy over the rounds."""
COMMANDS_MARK = "<!-- the help texts of all commands -->"
LOADED = re.compile(
    r"""<(?:script|img|iframe)[^>]+src="https?:|<link[^>]+rel="(?:stylesheet|preconnect)"[^>]+https?:"""
)
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
FENCE = re.compile(r"^(```.*?^```[ ]*$)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from files outside docs/."""
    for source, page in COPIED.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    files.append(File.generated(config, EXAMPLES, content=examples_page()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to files outside docs/ at their pages, and insert the help of the commands."""
    del config, files
    if COMMANDS_MARK in markdown:
        markdown = markdown.replace(COMMANDS_MARK, "\n".join(command_help()))
    parts = FENCE.split(markdown.replace("```python\n>>>", "```pycon\n>>>"))  # Pygments then knows the prompts
    return "".join(part if FENCE.match(part) else with_site_links(part, page.file.src_uri) for part in parts)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Raise PluginError if a page loads scripts, images, styles or fonts from the web: the site works offline."""
    del config
    found = LOADED.search(output)
    if found:
        raise PluginError(f"{page.file.src_uri}: loads a resource from the web: {found[0]}")
    return output


def with_site_links(markdown: str, page: str) -> str:
    """Return the text of a page with links that are valid on the site.

    Args:
        markdown: The text.
        page: The page's path on the site, such as "howto/own-data.md".

    >>> with_site_links("[x](../CONTRIBUTING.md#how)", "simulate.md")
    '[x](contributing.md#how)'
    >>> with_site_links("[x](docs/simulate.md)", "contributing.md")
    '[x](simulate.md)'
    >>> with_site_links("[x](../../examples/own_model.py)", "howto/own-model.md")
    '[x](../examples.md#own_modelpy)'
    """
    source = next((source for source, copied in COPIED.items() if copied == page), f"docs/{page}")

    def replaced(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[1]))
        found, anchor = site_path(target), link[2] or ""
        if found is None:
            return link[0]
        found, _, section = found.partition("#")
        return posixpath.relpath(found, posixpath.dirname(page) or ".") + (anchor or (section and f"#{section}"))

    return LINK.sub(replaced, markdown)


def site_path(path: str) -> str | None:
    """Return the page of a file of the repository, or None if the site has none.

    >>> site_path("docs/theory.md"), site_path("examples/flower_pytorch"), site_path("Makefile")
    ('theory.md', 'examples.md#flower_pytorch', None)
    """
    if path in COPIED:
        return COPIED[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path == "examples":
        return EXAMPLES
    if path.startswith("examples/"):
        return f"{EXAMPLES}#{posixpath.basename(path).replace('.', '')}"
    return None


def examples_page() -> str:
    """Return a page with a picture and a sentence about every program in examples/, and below them the programs."""
    programs = [path for path in sorted((ROOT / "examples").glob("*.py")) if path.name != "__init__.py"]
    cards, sections = [], list[str]()
    for path in programs:
        code = path.read_text(encoding="utf-8").rstrip()
        picture, anchor = f"images/example-{path.stem.replace('_', '-')}.png", path.name.replace(".", "")
        sentence, _, _ = (ast.get_docstring(ast.parse(code)) or "").partition("\n")
        cards.append(f"-   [![{path.name}]({picture})](#{anchor})\n\n    **[{path.name}](#{anchor})**\n    {sentence}")
        sections.append(f"## {path.name}\n\n```python\n{code}\n```")
    title, _, body = (ROOT / "examples/flower_pytorch/README.md").read_text(encoding="utf-8").partition("\n")
    cards.append(f"-   **[flower_pytorch](#flower_pytorch)**\n    {title.removeprefix('# ')}: what changes in the code")
    gallery = '<div class="grid cards" markdown>\n\n' + "\n\n".join(cards) + "\n\n</div>"
    sections.append("## flower_pytorch\n\n" + re.sub(r"^#", "##", body, flags=re.MULTILINE))
    return "\n\n".join(["# Examples", EXAMPLES_INTRODUCTION, gallery, *sections])


def command_help() -> Iterator[str]:
    """Yield a section with the help text of each command of the command line."""
    import_module("fedlatest.cli")  # adds the commands to the app
    from fedlatest.cli.app import app

    command = get_command(app)
    assert isinstance(command, typer.core.TyperGroup)
    for name, texts in _help(command, "fedlatest"):
        yield f"## {name}\n\n```text\n{texts}\n```\n"


def _help(command: typer.core.TyperGroup, name: str) -> Iterator[tuple[str, str]]:
    for sub in command.list_commands(typer.Context(command)):
        entry, full = command.commands[sub], f"{name} {sub}"
        if isinstance(entry, typer.core.TyperGroup):
            yield from _help(entry, full)
        elif not entry.hidden:
            context = typer.Context(entry, info_name=full, terminal_width=100, max_content_width=100)
            yield full, entry.get_help(context).rstrip()
