"""Tests of compact_results.py and results.py: python3 -m unittest discover -s scripts -p '*_test.py'"""

import json
import pathlib
import tempfile
import unittest

import compact_results
import results

FIXTURES = results.ROOT / "crates" / "cli" / "tests" / "fixtures"


def fixture(name):
    return json.loads((FIXTURES / name).read_text(encoding="utf-8"))


class Compacting(unittest.TestCase):
    def test_pairs_keep_their_run_and_their_ratios(self):
        report = fixture("pairs.json")
        run, *lines = compact_results.compact(report, "pairs")
        self.assertEqual((run["format"], run["run"], run["cublaslt"], run["driver"]), (1, "pairs", "13.1.0", "580.159.04"))
        self.assertNotIn("--json", run["command"])
        self.assertTrue(run["command"].startswith("pgemm bench --size 8192"))
        self.assertEqual([line["problem"] for line in lines], ["f16 kk 8192x8192x8192", "f16 kk 4096x4096x4096"])
        peer, ours = lines[0]["contestants"]
        self.assertEqual(peer["name"], "cuBLASLt")
        self.assertNotIn("ratio", peer)
        self.assertEqual(ours["kernel"], "f16-kk-f16-128x256x64-s4-w2-c1x1:whole:16")
        self.assertNotIn("name", ours)
        summary = report["outcomes"][0]["contestants"][1]["ratio"]
        for part, value in zip(("min", "median", "max"), ours["ratio"], strict=True):
            self.assertAlmostEqual(summary[part], value, places=4)

    def test_streams_keep_every_way(self):
        report = fixture("stream.json")
        _, line, *_ = compact_results.compact(report, "stream")
        ways = report["streams"][0]["ways"]
        self.assertEqual([way["way"] for way in line["ways"]], [way["way"] for way in ways])
        self.assertEqual(len(line["one_job"]), len(report["streams"][0]["alone"]))

    def test_results_of_the_tuner(self):
        choice = {"spec": "bf16-kk-bf16-64x64x64-s8-w1-c1x1", "raster_rows": 4, "split": {"split_k": 3}, "dependent_launch": False}
        timing = {"microseconds": 2.0, "ratios": [1.0, 1.2, 1.1]}
        tuned = {
            "key": {"m": 64, "n": 96, "k": 256, "dtype": "e4m3", "b_dtype": "e5m2", "output": "bf16", "a_major": "k", "b_major": "k"},
            "options": {"trials": 1, "seconds": 2.0},
            "chosen": choice,
            "heuristic": choice,
            "finalist": choice | {"ratio": 1.1, "interval": {"lower": 1.05, "upper": 1.15}, "timing": timing},
            "trials": [choice | {"rungs": [timing]}, choice | {"rungs": []}],
        }
        platform = {"device": "NVIDIA H200", "sm_count": 132, "driver": None, "cuda": "13.0", "version": "0.1.0"}
        run, line = compact_results.compact({"schema": 2, "date": "2026-11-22", "platform": platform, "problems": [tuned]}, "t")
        self.assertEqual(run["version"], "0.1.0")
        self.assertEqual(line["problem"], "e4m3*e5m2->bf16 kk 64x96x256")
        self.assertEqual(line["trials"], [["bf16-kk-bf16-64x64x64-s8-w1-c1x1:split-3:4:serial", 1.1]])
        self.assertEqual(results.parse_choice(line["chosen"]), choice)
        self.assertEqual(results.parse_problem(line["problem"]), tuned["key"])

    def test_choices_of_a_survey_are_beside_the_peers_time(self):
        row = {"m": 1, "n": 2, "k": 3, "dtype": "bf16", "output": "bf16", "a_major": "k", "b_major": "n", "launch": "graph"}
        row |= {"spec": "s", "raster_rows": 1, "split": "stream_k", "dependent_launch": True, "microseconds": 5.0}
        rows = [row | {"peer_microseconds": 1.1}] * 3
        machine = fixture("pairs.json")["machine"]
        _, *lines = compact_results.compact({"date": "d", "machine": machine, "rows": rows}, "s")
        for schema, lead_in, steady, own in [(2, 0, None, None), (3, 0.0, True, None), (3, 0.07, True, True)]:
            report = {"schema": schema, "date": "d", "machine": machine, "options": {"lead_in_seconds": lead_in}, "rows": rows}
            run, *_ = compact_results.compact(report, "s")
            self.assertEqual((run.get("steady"), run.get("own_clock")), (steady, own))
        self.assertEqual(len(lines), 1)
        (block,) = lines[0]["blocks"]
        self.assertEqual((len(block["choices"]), block["peer_us"]), (3, [1.1, 1.1]))
        self.assertEqual(block["choices"][0], ["s:stream-k:1:dependent", 5.0])

    def test_lines_of_an_atlas_with_one_peer(self):
        text = (FIXTURES / "atlas.jsonl").read_text(encoding="utf-8")
        run, *lines = compact_results.compact_atlas(text, "atlas")
        self.assertEqual((run["cublaslt"], run["seed"], run["seconds"]), ("13.1.0", 2026, 0.25))
        self.assertEqual(run["majors"], "kk,kn,mk,mn")
        self.assertNotIn("torch", run)
        self.assertEqual((lines[0]["ratio"], lines[0]["peer_us"]), ([1.0091, 1.0186, 1.0283], 26.834))
        self.assertNotIn("algorithm", lines[0])
        self.assertEqual((lines[3]["peer_rank"], lines[3]["faults"][0]["who"]), (1, "cuBLASLt #0"))
        self.assertTrue(lines[3]["faults"][0]["wrong"])

    def test_lines_of_an_atlas_with_several_peers(self):
        text = (FIXTURES / "atlas-peers.jsonl").read_text(encoding="utf-8")
        run, *lines = compact_results.compact_atlas(text, "atlas")
        self.assertEqual((run["cublaslt"], run["torch"][:12]), ("13.1.0", "torch 2.11.0"))
        first = lines[0]
        self.assertEqual([first[name][1] for name in ("ratio", "best", "torch")], [1.1, 1.0, 1.2])
        times = [first[name] for name in ("peer_us", "best_us", "torch_us")]
        self.assertEqual(times, [11.0, 10.0, 12.0])
        self.assertEqual(first["algorithm"], "66/20/36/3/1")
        self.assertEqual(first["best_algorithm"], "66/23/36/3/1")
        self.assertNotIn("peer_rank", first)
        of_cublaslt, of_torch = lines[1]["faults"]
        self.assertEqual((of_cublaslt["who"], of_cublaslt["wrong"]), ("cuBLASLt #0", True))
        self.assertEqual(lines[1]["peer_rank"], 1)
        self.assertEqual((of_torch["who"], of_torch["algorithm"]), ("torch", "torch.matmul"))
        refused = {"who": "torch", "refused": True, "why": "torch does not multiply these"}
        self.assertEqual(lines[2]["faults"], [refused])

    def test_ceilings_have_their_units(self):
        machine = {"device": "X", "sm_count": 132, "driver": None, "cuda": "13.0"}
        rate = {"what": "w", "rate": {"min": 1.0, "median": 2.0, "max": 3.0}, "sm_clock_mhz": 1700.04, "watts": None}
        report = {"date": "d", "machine": machine, "memory": [rate], "l2": [], "arithmetic": [rate | {"element": "bf16"}]}
        _, memory, bf16 = compact_results.compact(report, "roofline")
        self.assertEqual(memory, {"run": "roofline", "ceiling": "memory", "what": "w", "gb_per_s": [1, 2, 3], "mhz": 1700})
        self.assertEqual((bf16["ceiling"], bf16["tflops"]), ("bf16", [1, 2, 3]))

    def test_anything_else_is_refused(self):
        with self.assertRaises(compact_results.NotAReport):
            compact_results.compact({"machine": {}}, "nothing")


class Reading(unittest.TestCase):
    def write(self, *lines):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        text = "".join(compact_results.text(line) + "\n" for line in lines)
        (folder / "a.jsonl").write_text(text, encoding="utf-8")
        return folder

    def test_lines_become_rows_with_their_group(self):
        read = results.Results(self.write(*compact_results.compact(fixture("pairs.json"), "pairs")))
        self.assertEqual(len(read.select()), 4)
        ours = read.select(problem="f16 kk 8192*", kernel="*128x256*")
        self.assertEqual([row["group"] for row in ours], ["large"])
        self.assertEqual(read.select(run="others"), [])

    def test_the_newest_run_of_a_problem_counts(self):
        older = compact_results.compact(fixture("pairs.json"), "older")
        newer = compact_results.compact(fixture("pairs.json") | {"date": "2026-12-24T00:00:00Z"}, "newer")[:2]
        read = results.Results(self.write(*older, *newer))
        newest = read.select(newest=True, kernel="*")
        self.assertEqual({row["problem"]: row["run"] for row in newest}["f16 kk 8192x8192x8192"], "newer")
        self.assertEqual({row["problem"]: row["run"] for row in newest}["f16 kk 4096x4096x4096"], "older")

    def test_lines_without_their_run_and_other_formats_are_refused(self):
        for line in ({"run": "unknown", "problem": "p"}, {"format": 99, "run": "r"}):
            with self.assertRaises(results.ResultsError):
                list(results.read_lines(self.write(line) / "a.jsonl"))


if __name__ == "__main__":
    unittest.main()
