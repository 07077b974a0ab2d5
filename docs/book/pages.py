"""Puts the pages of the book into one folder for mdbook, with what they show and links that stay within the book.

    pages.py collect FOLDER   writes the sources
    pages.py check FOLDER     looks for links that lead nowhere in the book that mdbook has made of them

A page that is nothing but an include, such as an engine's, has its links from where the included text stands. Pictures and
other files that a page names go with it; a link to a page that is not in the summary is an error.
"""

import html.parser
import os
import pathlib
import re
import shutil
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
BOOK = pathlib.PurePosixPath("docs/book")
LINK = re.compile(r"\[([^][]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")


def normal(path):
    return pathlib.PurePosixPath(os.path.normpath(path))


def summary():
    """The pages by the file that has their text."""
    pages = {}
    for page in re.findall(r"\]\((.*?)\)", (ROOT / BOOK / "SUMMARY.md").read_text()):
        source = BOOK / page
        included = re.fullmatch(r"\{\{#include (.*)\}\}\s*", (ROOT / source).read_text())
        if included:
            source = normal(source.parent / included[1])
        pages[source] = pathlib.PurePosixPath(page)
    return pages


def collect(folder):
    pages = summary()
    # A link to a page that only includes, or to the contents, means the page itself.
    named = {BOOK / page: page for page in pages.values()} | pages
    named[BOOK / "SUMMARY.md"] = next(iter(pages.values()))
    wrong = []
    shutil.rmtree(folder, ignore_errors=True)

    for source, page in pages.items():

        def within(link, source=source, page=page):
            words, target, fragment = link[1], link[2], link[3] or ""
            if not target or ":" in target:
                return link[0]
            target = normal(source.parent / target)
            if target in named:
                there = named[target]
            elif (ROOT / target).is_dir():
                # A folder of the sources, which stay outside.
                return words
            elif target.suffix == ".md" or not (ROOT / target).is_file():
                wrong.append(f"{source}: {target} is not in the book")
                return link[0]
            else:
                there = pathlib.PurePosixPath("files", *target.parts)
                (folder / there).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / target, folder / there)
            return f"[{words}]({os.path.relpath(there, page.parent)}{fragment})"

        (folder / page).parent.mkdir(parents=True, exist_ok=True)
        (folder / page).write_text(LINK.sub(within, (ROOT / source).read_text()))
    shutil.copyfile(ROOT / BOOK / "SUMMARY.md", folder / "SUMMARY.md")
    return wrong


class Page(html.parser.HTMLParser):
    """The links of a page and the anchors in it."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.anchors.add(value)
            elif name in ("href", "src") and value and tag != "base":
                self.links.append(value)


def check(folder):
    # The page for what is not found has its links from the root of a site, the one to print has all chapters once more.
    found = (path for path in folder.rglob("*.html") if path.name not in ("404.html", "print.html"))
    pages = {path: Page(path.read_text()) for path in found}
    wrong = []
    for path, page in pages.items():
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = path
            if parts.path:
                target = pathlib.Path(os.path.normpath(path.parent / urllib.parse.unquote(parts.path)))
            anchors = pages[target].anchors if target in pages else None
            if not target.is_file():
                wrong.append(f"{path}: {link} leads nowhere")
            elif parts.fragment and anchors is not None and urllib.parse.unquote(parts.fragment) not in anchors:
                wrong.append(f"{path}: {link} has no such heading")
    return wrong


if __name__ == "__main__":
    task, folder = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    wrong = {"collect": collect, "check": check}[task](folder)
    for complaint in wrong:
        print(complaint, file=sys.stderr)
    sys.exit(1 if wrong else 0)
