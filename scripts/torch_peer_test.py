"""Tests of the program that multiplies with torch for `pgemm atlas`, with a stand-in for torch."""

import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import types
import unittest

import results

PROGRAM = results.ROOT / "crates" / "bench" / "src" / "atlas" / "torch" / "program.py"


class Protocol(unittest.TestCase):
    def start(self, torch):
        """The program, with this text as the module torch."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (folder / "torch.py").write_text(torch, encoding="utf-8")
        command = [sys.executable, "-c", PROGRAM.read_text(encoding="utf-8")]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": str(folder)},
        )
        self.enterContext(process)  # Closes the pipes and waits, after it was ended.
        self.addCleanup(process.kill)
        return process

    def ask(self, process, line):
        process.stdin.write(line.encode() + b"\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    def test_a_python_without_torch_says_so(self):
        process = self.start("raise ImportError('no such library')")
        answer = self.ask(process, '{"do": "hello"}')
        self.assertIn("cannot import torch: ImportError: no such library", answer["refused"])

    def test_a_torch_without_a_device_says_so_whatever_it_prints(self):
        process = self.start(
            "import os\nprint('hello')\nos.write(1, b'hello')\n"
            "__version__ = '2.11.0'\nclass cuda:\n    is_available = staticmethod(lambda: False)\n"
        )
        answer = self.ask(process, '{"do": "hello"}')
        self.assertRegex(answer["refused"], "^torch 2.11.0 of Python .* finds no CUDA device$")

    def test_it_goes_on_after_damaged_requests_and_ends_with_its_input(self):
        process = self.start("raise ImportError")
        damaged = ("nonsense", "[]", "{}", '{"do": "nothing"}', '{"do": "slice"}')
        for line in (*damaged, '{"do": "hello", "more": 1}'):
            self.assertIn("failed", self.ask(process, line), line)
        self.assertIn("refused", self.ask(process, '{"do": "hello"}'))
        process.stdin.close()
        self.assertEqual(process.wait(timeout=30), 0)

    def test_an_interrupt_is_left_to_the_command(self):
        process = self.start("raise ImportError")
        self.ask(process, '{"do": "hello"}')
        process.send_signal(signal.SIGINT)
        self.assertIn("refused", self.ask(process, '{"do": "hello"}'))
        process.stdin.close()
        self.assertEqual(process.wait(timeout=30), 0)


class Products(unittest.TestCase):
    def setUp(self):
        spec = importlib.util.spec_from_file_location("program", PROGRAM)
        self.program = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.program)
        self.settings = types.SimpleNamespace(allow_tf32=None, allow_fp16_accumulation=None)
        backends = types.SimpleNamespace(cuda=types.SimpleNamespace(matmul=self.settings))
        self.torch = types.SimpleNamespace(__version__="2.11.0", backends=backends)
        self.torch.ones = lambda *_, **__: "one"
        for name in set(self.program.TYPES.values()):
            setattr(self.torch, name, name)
        for name in ("matmul", "mm", "bmm", "_scaled_mm", "_int_mm"):
            called = lambda *operands, of=name, **options: (of, operands, options)
            setattr(self.torch, name, called)
        self.program.torch = self.torch

    def product(self, a, b, d, batch=1, precision="full"):
        name, function = self.program.product(a, b, d, batch, precision)
        return name, function("A", "B", "D")

    def test_each_kind_of_types_has_its_function(self):
        for types_of, batch, name in (
            (("bf16", "bf16", "bf16"), 1, "matmul"),
            (("f64", "f64", "f64"), 3, "matmul"),
            (("tf32", "tf32", "f32"), 1, "matmul"),
            (("f16", "f16", "f32"), 1, "mm"),
            (("bf16", "bf16", "f32"), 2, "bmm"),
            (("e4m3", "e5m2", "bf16"), 1, "_scaled_mm"),
            (("s8", "s8", "s32"), 1, "_int_mm"),
        ):
            called, (of, operands, options) = self.product(*types_of, batch=batch)
            self.assertEqual((called, of), (f"torch.{name}", name))
            self.assertEqual((operands, options["out"]), (("A", "B"), "D"))
        _, (_, _, options) = self.product("e4m3", "e4m3", "f16", precision="fast")
        self.assertEqual((options["out_dtype"], options["use_fast_accum"]), ("float16", True))

    def test_settings_are_those_of_the_types(self):
        self.product("tf32", "tf32", "f32")
        self.assertTrue(self.settings.allow_tf32)
        self.product("f32", "f32", "f32", precision="exact")
        self.assertFalse(self.settings.allow_tf32)
        self.product("f16", "f16", "f16", precision="f16")
        self.assertTrue(self.settings.allow_fp16_accumulation)
        self.product("f16", "f16", "f16")
        self.assertFalse(self.settings.allow_fp16_accumulation)

    def test_other_types_are_refused(self):
        mixed = (("bf16", "f16", "bf16"), ("u8", "u8", "s32"), ("s8", "s8", "f32"))
        for types_of in (*mixed, ("f16", "f16", "bf16"), ("x", "x", "x")):
            with self.assertRaises(self.program.Refused, msg=types_of):
                self.product(*types_of)
        del self.torch.float8_e4m3fn, self.settings.allow_fp16_accumulation
        with self.assertRaisesRegex(self.program.Refused, "has no type e4m3"):
            self.product("e5m2", "e5m2", "e4m3")
        with self.assertRaisesRegex(self.program.Refused, "add up in f16"):
            self.product("f16", "f16", "f16", precision="f16")


if __name__ == "__main__":
    unittest.main()
