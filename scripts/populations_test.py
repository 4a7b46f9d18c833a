"""Tests of populations.py with a command in place of pgemm and two GPUs that are not there."""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import populations

# Writes what it was called with to its file, a line for each call. Where it shows files, it notes them.
COMMAND = """#!/usr/bin/env python3
import json, os, pathlib, sys
arguments = sys.argv[1:]
shows = "--show" in arguments
file = pathlib.Path(__file__).with_name("shown") if shows else arguments[arguments.index("--json") + 1]
with open(file, "a", encoding="utf-8") as out:
    out.write(json.dumps([os.environ.get("CUDA_VISIBLE_DEVICES"), arguments]) + "\\n")
sys.exit(3 if ("WRONG" if shows else "FAILS") in os.environ else 0)
"""


class Populations(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, text in [("pgemm", COMMAND), ("nvidia-smi", "#!/bin/sh\necho GPU-one\necho GPU-two\n")]:
            path = self.folder / name
            path.write_text(text, encoding="utf-8")
            path.chmod(0o755)
        self.environment = {"PGEMM": str(self.folder / "pgemm"), "PATH": f"{self.folder}:{os.environ['PATH']}"}

    def run_with(self, *arguments, **environment):
        """The exit status."""
        command = ["populations.py", "--out", str(self.folder / "out"), *arguments]
        quiet = contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO())
        with mock.patch.dict(os.environ, self.environment | environment), mock.patch.object(sys, "argv", command), quiet[0], quiet[1]:
            with self.assertRaises(SystemExit) as ended:
                populations.main()
        return ended.exception.code

    def calls(self, name):
        """The devices and arguments of the calls that wrote the parts of a population."""
        files = sorted((self.folder / "out").glob(f"{name}-[0-9].jsonl"))
        return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]

    def test_parts_cover_a_population_once_and_are_shown_together(self):
        self.assertEqual(self.run_with("--seed", "7", "--only", "bf16-any,bf16-models,tf32"), 0)
        calls = self.calls("bf16-models")
        shards = [arguments[arguments.index("--shard") + 1] for _, arguments in calls]
        self.assertEqual(shards, ["1/6", "3/6", "5/6"])
        self.assertLessEqual({device for device, _ in calls}, {"GPU-one", "GPU-two"})
        self.assertTrue(all("--resume" not in arguments for _, arguments in calls))
        seeds = [arguments[arguments.index("--seed") + 1] for name in ("bf16-models", "bf16-any", "tf32") for _, arguments in self.calls(name)]
        self.assertEqual(seeds, ["703"] * 3 + ["704"] * 3 + ["705"])
        shown = [json.loads(line)[1] for line in (self.folder / "shown").read_text(encoding="utf-8").splitlines()]
        self.assertEqual([arguments.count("--show") for arguments in shown], [3, 3, 1])

    def test_a_second_run_goes_on_with_the_files(self):
        self.run_with("--only", "f64")
        self.run_with("--only", "f64")
        (_, first), (_, second) = self.calls("f64")
        self.assertNotIn("--resume", first)
        self.assertIn("--resume", second)

    def test_named_gpus_are_used_alone(self):
        self.run_with("--only", "bf16-any", CUDA_VISIBLE_DEVICES="5")
        self.assertEqual({device for device, _ in self.calls("bf16-any")}, {"5"})

    def test_failures_wrong_results_and_unknown_names_are_no_success(self):
        self.assertEqual(self.run_with("--only", "f64", FAILS="1"), 1)
        self.assertEqual(self.run_with("--only", "f64", WRONG="1"), 1)
        self.assertEqual(self.run_with("--only", "f65"), 2)

    def test_what_is_missing_is_named(self):
        self.assertIn("PGEMM", self.run_with("--only", "f64", PGEMM="/nowhere/pgemm"))
        self.assertIn("nvidia-smi", self.run_with("--only", "f64", PATH="/nowhere"))


if __name__ == "__main__":
    unittest.main()
