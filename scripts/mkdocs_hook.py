"""Lets the documentation site show files outside docs/, at the links that work on a repository host.

MkDocs knows only files below docs/. This hook adds the README as the home page, other Markdown files of the repository as
pages, and every other linked file as plain text; a linked folder without pages is one text of all its files. Nothing is copied in
the repository. A link to a file that is missing stays as it is, so that `mkdocs build --strict` reports it.
"""
import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File, InclusionLevel

ROOT = Path(__file__).resolve().parent.parent
DOCS = "docs/"
HOME = "README.md"
# Pages outside docs/: path in the repository. Others are shown as text.
PAGES = [
    HOME,
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "bench/peers/README.md",
    "clients/python/README.md",
    "clients/typescript/README.md",
    "schema/README.md",
]
# [text](target), not in code: images and links alike, targets without a scheme.
LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")
FENCE = re.compile(r"^ *(```|~~~)")


def address(path):
    """The path of a repository file within the site's sources."""
    if path == HOME:
        return "index.md"
    if path.startswith(DOCS):
        return path.removeprefix(DOCS)
    if path in PAGES:
        return f"repository/{path}"
    return f"repository/{path}.txt"


def repository_path(page):
    """The path in the repository of a page of the site."""
    for path in PAGES:
        if address(path) == page:
            return path
    return DOCS + page


def target(path):
    """What a link to this path of the repository shows: a file, a folder without pages, or None where there is nothing."""
    place = ROOT / path
    if place.is_dir():
        pages = sorted(place.glob("*.md"), key=lambda page: (page.name != "README.md", page.name))
        return pages[0].relative_to(ROOT).as_posix() if pages else path
    return path if place.is_file() else None


def text_of(path):
    """A file, or the files of a folder one after another."""
    place = ROOT / path
    if place.is_file():
        return place.read_text()
    files = [file for file in sorted(place.rglob("*")) if file.is_file()]
    return "\n".join(f"==> {file.relative_to(ROOT).as_posix()} <==\n{file.read_text()}" for file in files)


def outside_code(text, change):
    """The text with every line changed that is in no fenced block."""
    lines, fenced = [], False
    for line in text.split("\n"):
        if FENCE.match(line):
            fenced = not fenced
        lines.append(line if fenced else change(line))
    return "\n".join(lines)


def linked_files():
    """Files and folders outside docs/ that a page links to, and that are no pages themselves."""
    sources = [ROOT / path for path in PAGES] + sorted((ROOT / DOCS).rglob("*.md"))
    found = set()
    for source in sources:
        folder = source.parent.relative_to(ROOT).as_posix()
        for match in LINK.finditer(source.read_text()):
            path = target(posixpath.normpath(posixpath.join(folder, match[2])))
            if path and path not in PAGES and not path.startswith(DOCS):
                found.add(path)
    return found


def on_files(files, config):
    for path in [*PAGES, *sorted(linked_files())]:
        files.append(File.generated(config, address(path), content=text_of(path), inclusion=InclusionLevel.INCLUDED))
    return files


def on_page_markdown(markdown, page, config, files):
    here = page.file.src_uri
    folder = posixpath.dirname(repository_path(here))

    def change(line):
        def link(match):
            path = target(posixpath.normpath(posixpath.join(folder, match[2])))
            if path is None:
                return match[0]
            there = posixpath.relpath(address(path), posixpath.dirname(here) or ".")
            return f"{match[1]}{there}{match[3] or ''}{match[4]}"

        return LINK.sub(link, line)

    return outside_code(markdown, change)
