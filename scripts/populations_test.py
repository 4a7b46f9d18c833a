"""Tests of populations.py with a command in place of pgemm and two GPUs that are not there."""

import contextlib
import io
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import populations

# Writes one problem for each run, and what it was called with.
COMMAND = """#!/usr/bin/env python3
import json, os, sys
arguments = sys.argv[1:]
file = arguments[arguments.index("--json") + 1]
row = {"population": "eights", "problem": os.path.basename(file), "regime": "memory", "device": os.environ["CUDA_VISIBLE_DEVICES"],
       "arguments": arguments, "peers": [{"ratio": [0.9, 0.96, 1.2]}], "faults": [{"who": "persistent-gemm", "wrong": True}, {"who": "cuBLASLt", "wrong": True}]}
with open(file, "a", encoding="utf-8") as out:
    out.write(json.dumps(row) + "\\n")
sys.exit(3 if "FAILS" in os.environ else 0)
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
        """The exit status, and what was printed."""
        printed = io.StringIO()
        command = ["populations.py", "--out", str(self.folder / "out"), *arguments]
        with mock.patch.dict(os.environ, self.environment | environment), mock.patch.object(sys, "argv", command):
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
                with self.assertRaises(SystemExit) as ended:
                    populations.main()
        return ended.exception.code, printed.getvalue()

    def test_parts_cover_a_population_once_and_say_what_they_measured(self):
        status, printed = self.run_with("--seed", "7", "--only", "bf16-any,bf16-models,tf32")
        self.assertEqual(status, 0)
        self.assertIn("| bf16-any | 3 | 3 | 0.960 | – | 0.960 | – | 100.0 % | 0.960 (bf16-any-0.jsonl) | 3 |", printed)
        self.assertIn("| tf32 | 1 |", printed)
        rows = list(populations.rows(self.folder / "out", "bf16-models"))
        shards = sorted(row["arguments"][row["arguments"].index("--shard") + 1] for row in rows)
        self.assertEqual(shards, ["1/6", "3/6", "5/6"])
        self.assertTrue(all("--resume" not in row["arguments"] for row in rows))
        devices = {row["device"] for name, *_ in populations.POPULATIONS for row in populations.rows(self.folder / "out", name)}
        self.assertLessEqual(devices, {"GPU-one", "GPU-two"})

    def test_a_second_run_goes_on_with_the_files(self):
        self.run_with("--only", "f64")
        self.run_with("--only", "f64")
        first, second = populations.rows(self.folder / "out", "f64")
        self.assertNotIn("--resume", first["arguments"])
        self.assertIn("--resume", second["arguments"])

    def test_failures_and_unknown_names_are_no_success(self):
        status, _ = self.run_with("--only", "f64", FAILS="1")
        self.assertEqual(status, 1)
        status, _ = self.run_with("--only", "f65")
        self.assertEqual(status, 2)


if __name__ == "__main__":
    unittest.main()
