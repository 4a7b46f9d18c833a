#!/usr/bin/env python3
"""Checks the links of the built book, and prints it as a PDF. scripts/book.sh calls both.

    scripts/book.py links    # every link and image of every page, and those of the other documents, without a network
    scripts/book.py pdf      # target/book/persistent-gemm.pdf, with a title page, contents and page numbers
"""

import html
import html.parser
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
BOOK = ROOT / "target" / "book" / "html"
PDF = ROOT / "target" / "book" / "persistent-gemm.pdf"
# Documents that are read on the web pages of the repository, and not in the book.
OTHERS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")

LINK = re.compile(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")

# What the printed book adds to mdBook's own style.
STYLE = """
@page { size: A4; margin: 18mm 16mm 20mm 16mm;
        @bottom-center { content: counter(page); font: 9pt sans-serif; color: #555; } }
@page :first { @bottom-center { content: ""; } }
#title-page { break-after: page; padding-top: 8cm; text-align: center; }
#title-page h1 { font-size: 2.6em; }
#contents { break-after: page; }
#contents h2 { margin: 0.9em 0 0.2em; font-size: 1.1em; }
#contents div { display: flex; }
#contents div span { flex: 1; border-bottom: 1px dotted #999; margin: 0 0.4em 0.3em; }
h1, h2, h3, h4 { break-after: avoid; }
tr, img { break-inside: avoid; }
"""


class Page(html.parser.HTMLParser):
    """The anchors and the links of a page."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors.update(attributes[name] for name in ("id", "name") if attributes.get(name))
        self.links.update(attributes[name] for name in ("href", "src") if attributes.get(name))


def slug(heading):
    """The anchor that GitHub and mdBook give a heading."""
    heading = LINK.sub("]", heading).replace("[", "").replace("]", "").replace("`", "")
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors_of_markdown(path):
    return {slug(heading) for heading in HEADING.findall(FENCED.sub("", path.read_text()))}


def split(link):
    path, _, fragment = link.partition("#")
    return urllib.parse.unquote(path), urllib.parse.unquote(fragment)


class Links:
    """The links that lead nowhere, as lines of text."""

    def __init__(self):
        self.faults = []
        self.count = 0
        # The page for all chapters at once repeats the others, and the one for unknown addresses
        # has absolute links.
        names = sorted(BOOK.rglob("*.html"))
        self.pages = {path: Page(path.read_text()) for path in names if path.name not in ("print.html", "404.html")}

    def fault(self, place, link, why):
        self.faults.append(f"{place}: '{link}' {why}")

    def of_book(self):
        for path, page in self.pages.items():
            for link in sorted(page.links):
                self.count += 1
                self.from_page(path, link)

    def from_page(self, path, link):
        place = path.relative_to(BOOK)
        file, fragment = split(link)
        if re.match(r"[a-z]+:", file):
            return None
        target = (path.parent / file).resolve() if file else path
        if not target.is_file():
            return self.fault(place, link, "is not in the book")
        if fragment and target in self.pages and fragment not in self.pages[target].anchors:
            return self.fault(place, link, "names no heading of that page")
        return None

    def to_repository(self, place, link, target, fragment):
        if not target.exists():
            self.fault(place, link, "is not in the repository")
        elif fragment and target.suffix == ".md" and fragment not in anchors_of_markdown(target):
            self.fault(place, link, "names no heading of that document")

    def of_documents(self):
        # Links of pages to files that are not in the book.
        for path in [ROOT / name for name in OTHERS] + sorted((ROOT / "docs").glob("*.md")):
            name = path.relative_to(ROOT)
            text = CODE.sub("", FENCED.sub("", path.read_text()))
            for link in LINK.findall(text):
                self.count += 1
                file, fragment = split(link)
                target = (path.parent / file).resolve() if file else path
                is_page = path.parent == target.parent == ROOT / "docs"
                if not re.match(r"[a-z]+:", file) and not is_page:
                    self.to_repository(name, link, target, fragment)

    def of_summary(self):
        listed = {split(link)[0] for link in LINK.findall((ROOT / "docs" / "SUMMARY.md").read_text())}
        for path in sorted((ROOT / "docs").glob("*.md")):
            if path.name not in listed | {"SUMMARY.md"}:
                self.fault("docs/SUMMARY.md", path.name, "is a page that the book does not have")


def check_links():
    links = Links()
    links.of_book()
    links.of_documents()
    links.of_summary()
    for fault in links.faults:
        print(f"book: {fault}", file=sys.stderr)
    if links.faults:
        sys.exit(f"book: {len(links.faults)} of {links.count} links lead nowhere")
    print(f"book: all {links.count} links of {len(links.pages)} pages and {len(OTHERS)} documents lead somewhere")


def chapters():
    """The parts and chapters of SUMMARY.md: ('part', title) or ('chapter', title)."""
    for line in (ROOT / "docs" / "SUMMARY.md").read_text().splitlines()[1:]:
        link = re.match(r"(?:- )?\[([^]]+)\]\(([^)]+)\)$", line.strip())
        if line.startswith("# "):
            yield "part", line[2:], None
        elif link:
            yield "chapter", link[1], link[2]


def first_headings(text):
    """The anchors of the chapters' first headings in mdBook's page for printing."""
    return re.findall(r'<h1[^>]* id="([^"]+)"', text)


def contents(anchors, pages):
    lines, anchors = [], iter(anchors)
    for kind, title, _ in chapters():
        if kind == "part":
            lines.append(f"<h2>{html.escape(title)}</h2>")
        else:
            anchor = next(anchors)
            lines.append(f'<div><a href="#{anchor}">{html.escape(title)}</a><span></span>{pages.get(anchor, "")}</div>')
    return f'<section id="contents"><h1>Contents</h1>{"".join(lines)}</section>'


def document(text, anchors, pages):
    """mdBook's page for printing with a title page and contents before the first chapter."""
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    title = f'<section id="title-page"><h1>persistent-gemm</h1><p>Matrix multiplication for NVIDIA Hopper, in Rust</p><p>{version}</p></section>'
    text = re.sub(r"<script\b.*?</script>", "", text, flags=re.DOTALL)
    text = text.replace("</head>", f"<style>{STYLE}</style></head>", 1)
    return re.sub(r"(<main>)", lambda match: match[1] + title + contents(anchors, pages), text, count=1)


def chromium():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    sys.exit("book: the PDF needs Chromium (Debian and Ubuntu: apt install chromium), or use scripts/book.sh --no-pdf")


def print_page(page, target):
    with tempfile.TemporaryDirectory() as profile:
        options = [
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
            f"--user-data-dir={profile}", "--no-pdf-header-footer", "--generate-pdf-document-outline",
            f"--print-to-pdf={target}",
        ]
        outcome = subprocess.run([chromium(), *options, page.as_uri()], capture_output=True, text=True, timeout=300)
    if outcome.returncode != 0 or not target.exists():
        sys.exit(f"book: Chromium could not print the book:\n{outcome.stderr}")


def pages_of(anchors, target):
    """The page of each anchor, from the destinations that the PDF names."""
    if not shutil.which("pdfinfo"):
        sys.exit("book: the PDF needs pdfinfo (Debian and Ubuntu: apt install poppler-utils), or use scripts/book.sh --no-pdf")
    listed = subprocess.run(["pdfinfo", "-dests", target], capture_output=True, text=True, check=True).stdout
    found = {name: int(page) for page, name in re.findall(r'^ *(\d+) .*"(.*)"$', listed, re.MULTILINE)}
    missing = [anchor for anchor in anchors if anchor not in found]
    if missing:
        sys.exit(f"book: the PDF has no destination {missing[0]}, so the contents cannot name its page")
    return {anchor: found[anchor] for anchor in anchors}


def make_pdf():
    text = (BOOK / "print.html").read_text()
    anchors = first_headings(text)
    count = sum(kind == "chapter" for kind, _, _ in chapters())
    if len(anchors) != count:
        sys.exit(f"book: {count} chapters have {len(anchors)} first headings: give each page one heading of the first level")
    page = BOOK / "pdf.html"
    pages = {}
    # The first time without the page numbers of the contents, which the result says.
    for _ in range(2):
        page.write_text(document(text, anchors, pages))
        print_page(page, PDF)
        pages = pages_of(anchors, PDF)
    page.unlink()
    count = re.search(r"^Pages: +(\d+)", subprocess.run(["pdfinfo", PDF], capture_output=True, text=True, check=True).stdout, re.MULTILINE)
    print(f"book: {PDF.relative_to(ROOT)} has {count[1]} pages")


if __name__ == "__main__":
    {"links": check_links, "pdf": make_pdf}[sys.argv[1]]()
