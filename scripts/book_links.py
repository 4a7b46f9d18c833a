#!/usr/bin/env python3
"""A preprocessor of mdBook: links to files outside of the book become the paths of these files in the repository.

The pages of the book are also read in a checkout, so they link to sources by relative paths. Such files are not part of the built
book. mdBook calls this script with the book on stdin, as its documentation describes.
"""

import json
import posixpath
import re
import sys

FENCE = re.compile(r"^\s*```")
CODE = re.compile(r"(`[^`]*`)")
# A link, not an image: its text, its target, and a part of it. Code in the text is set aside.
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(?:#[^)\s]*)?\)")


def rewrite(content, page, pages):
    """The text of a page. `page` is its path from the book's folder, `pages` are those of all pages."""
    folder = posixpath.join("docs", posixpath.dirname(page))

    def replaced(match, codes):
        text, path = match[1], match[2]
        if re.match(r"[a-z]+:", path):
            return match[0]
        path = posixpath.normpath(posixpath.join(folder, path))
        inside = path.startswith("docs/") and (path[5:] in pages or not path.endswith(".md"))
        if inside:
            return match[0]
        # The number of the code in the text, if the text is code.
        number = match.string.count("\0", 0, match.start(1))
        shown = codes[number].strip("`") if text == "\0" else text
        return text if shown == path else f"{text} (`{path}`)"

    lines, fenced = [], False
    for line in content.split("\n"):
        fenced ^= bool(FENCE.match(line))
        if not fenced:
            # Code is set aside, so that a link around it is whole, and nothing in it is a link.
            parts = CODE.split(line)
            codes = parts[1::2]
            line = LINK.sub(lambda match: replaced(match, codes), "\0".join(parts[0::2]))
            line = "".join(part + code for part, code in zip(line.split("\0"), codes + [""]))
        lines.append(line)
    return "\n".join(lines)


def chapters(items):
    for item in items:
        if isinstance(item, dict) and "Chapter" in item:
            yield item["Chapter"]
            yield from chapters(item["Chapter"]["sub_items"])


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    _context, book = json.load(sys.stdin)
    found = [chapter for chapter in chapters(book["items"]) if chapter["path"]]
    # mdBook calls README.md index.md after it was read; links in sources name README.md.
    pages = {chapter["source_path"] for chapter in found}
    for chapter in found:
        chapter["content"] = rewrite(chapter["content"], chapter["source_path"], pages)
    json.dump(book, sys.stdout)


if __name__ == "__main__":
    main()
