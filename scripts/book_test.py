#!/usr/bin/env python3
"""Tests of the scripts that build the book and check its links."""

import pathlib
import tempfile
import unittest

import book
import book_links


class Rewriting(unittest.TestCase):
    def rewritten(self, text, page="a.md", pages=("a.md", "b.md")):
        return book_links.rewrite(text, page, set(pages))

    def test_links_within_the_book_stay(self):
        for text in ("[b](b.md)", "[b](b.md#part)", "[p](#part)", "![i](images/i.svg)", "[w](https://example.com/x)"):
            self.assertEqual(self.rewritten(text), text)

    def test_links_out_of_the_book_become_paths(self):
        self.assertEqual(self.rewritten("a [f](../Cargo.toml) b"), "a f (`Cargo.toml`) b")
        self.assertEqual(self.rewritten("[n](archive/log.md#x)"), "n (`docs/archive/log.md`)")
        self.assertEqual(self.rewritten("`q` [`crates/cute`](../crates/cute)"), "`q` `crates/cute`")
        self.assertEqual(self.rewritten("[README.md](../README.md)"), "README.md")

    def test_code_is_left_alone(self):
        self.assertEqual(self.rewritten("`[f](../x)` [`f`](../x)"), "`[f](../x)` `f` (`x`)")
        block = "```text\n[f](../x)\n```\n"
        self.assertEqual(self.rewritten(block), block)


class Checking(unittest.TestCase):
    def test_anchors_of_headings(self):
        self.assertEqual(book.slug("tile_m and `tile_n`"), "tile_m-and-tile_n")
        self.assertEqual(book.slug("What is [here](x.md), and why?"), "what-is-here-and-why")

    def faults(self, pages):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder).resolve()
            for name, text in pages.items():
                (folder / name).write_text(text)
            before, book.BOOK = book.BOOK, folder
            try:
                links = book.Links()
                links.of_book()
            finally:
                book.BOOK = before
            return links.faults

    def test_links_that_lead_nowhere_are_found(self):
        there = '<h1 id="top"></h1>'
        self.assertEqual(self.faults({"a.html": '<a href="b.html#top"></a>', "b.html": there}), [])
        for link, part in (
            ("c.html", "is not in the book"),
            ("b.html#bottom", "names no heading"),
        ):
            [fault] = self.faults({"a.html": f'<a href="{link}"></a>', "b.html": there})
            self.assertIn(part, fault)

    def test_links_of_documents_to_files_that_are_not_there_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder).resolve()
            (folder / "docs").mkdir()
            for name in book.OTHERS:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text("# Top\n")
            (folder / "docs/a.md").write_text("[x](../none.rs) [y](../README.md#top) [z](../README.md#end) [page](b.md)")
            before, book.ROOT = book.ROOT, folder
            try:
                links = book.Links()
                links.of_documents()
            finally:
                book.ROOT = before
        faults = "\n".join(links.faults)
        self.assertEqual(len(links.faults), 2, faults)
        self.assertIn("'../none.rs' is not in the repository", faults)
        self.assertIn("'../README.md#end' names no heading", faults)


if __name__ == "__main__":
    unittest.main()
