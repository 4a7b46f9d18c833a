//! Problems whose tiles are split along k: launches that run at once do not share a workspace, sums
//! have one order whatever else runs, and the other order is right too.

use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use persistent_gemm::driver::{Device, Graph, Stream, StreamRef};
use persistent_gemm::{Config, Dtype, Gemm, Major, Prepared, Problem, RunRequest, Split};

use crate::device::device;
use crate::operands::{Fill, MatrixSet};
use crate::scale::by_device;

/// Results in f32, where another order of the sum shows.
fn config(split: Split) -> Config {
    Config::new(Dtype::Bf16).with_output(Dtype::F32).with_split(split)
}

fn problem() -> Problem {
    by_device(
        Problem::new(384, 520, 4096, Major::K, Major::K),
        Problem::new(120, 264, 512, Major::K, Major::K),
    )
}

/// A few rows, as when tokens are decoded.
fn decode() -> Problem {
    by_device(
        Problem::new(8, 4096, 4096, Major::K, Major::K),
        Problem::new(8, 256, 512, Major::K, Major::K),
    )
}

/// One or a few tiles that many CTAs have parts of.
fn deep() -> Problem {
    Problem::new(136, 200, by_device(40_000, 4000), Major::M, Major::N)
}

/// The same with large tiles. The planner's own pick for stream-K may have as many tiles as run at
/// once, and then splits none.
fn large(split: Split) -> Config {
    config(split).with_tile_m(128).with_tile_n(128)
}

/// Each way to split, few parts and many, and a few rows computed transposed.
fn cases() -> [(Config, Problem); 5] {
    let swapped = config(Split::SplitK(3)).with_swapped(true);
    [
        (large(Split::StreamK), problem()),
        (config(Split::SplitK(4)), problem()),
        (swapped, decode()),
        // The planner's own pick for few SMs has a tile for each.
        (by_device(config(Split::StreamK), large(Split::StreamK)), deep()),
        (config(Split::SplitK(50)), deep()),
    ]
}

/// The problem prepared, with tiles that are split.
fn prepare(device: &Device, config: Config, problem: &Problem) -> (Gemm, Arc<Prepared>) {
    let gemm = Gemm::create(device, config).unwrap();
    let prepared = gemm.prepare(problem).unwrap();
    assert!(prepared.plan().split_tiles > 0, "{:?}", prepared.plan());
    assert!(prepared.workspace_bytes() > 0, "{:?}", prepared.plan());
    let swapped = prepared.plan().swapped();
    assert!(
        gemm.config().swapped.is_none_or(|requested| requested == swapped),
        "{:?}",
        prepared.plan()
    );
    (gemm, prepared)
}

/// Enqueues the product of these operands.
fn run(gemm: &Gemm, prepared: &Prepared, operands: &MatrixSet, stream: StreamRef<'_>) {
    // SAFETY: operands wait for the work on them when they are dropped.
    unsafe { gemm.run_at(RunRequest::prepared(prepared, 1.0, 0.0), &operands.pointers(), stream) }
        .unwrap();
}

/// A product of so many rows, fewer on the emulated device.
fn noise(rows: usize) -> Problem {
    by_device(
        Problem::new(rows, 3072, 512, Major::K, Major::K),
        Problem::new(rows / 16, 128, 64, Major::K, Major::K),
    )
}

/// Another stream with more work than the device has room for.
struct Noise {
    gemm: Gemm,
    operands: MatrixSet,
    stream: Stream,
}

impl Noise {
    fn new(device: &Device) -> Noise {
        let stream = Stream::new(device).unwrap();
        let config = Config::new(Dtype::Bf16);
        let operands = MatrixSet::new(&config, &noise(2048), Fill::Integers, 77, &stream);
        Noise { gemm: Gemm::create(device, config).unwrap(), operands, stream }
    }

    /// Some more of it: kernels of a quarter of a wave to several waves, so that SMs come free at
    /// changing times.
    fn go_on(&self, round: usize) {
        for m in [2048, 128 << (round % 4), 640] {
            let problem = noise(m);
            let (pointers, stream) = (self.operands.pointers(), self.stream.as_ref());
            // SAFETY: as in `run`; fewer rows than the operands have.
            unsafe { self.gemm.run_at(&problem, &pointers, stream) }.unwrap();
        }
    }
}

#[test]
fn captures_replayed_at_once_do_not_share_a_workspace() {
    let runs = by_device(8, 2);
    let Some(device) = device("captures_replayed_at_once") else { return };
    for split in [Split::SplitK(4), Split::StreamK] {
        // Half of the device each, so that both are there at once; tiles too few for it, so that
        // they are split.
        let sms = Some(device.properties().sm_count / 2);
        let config = large(split).with_sms(sms);
        let (gemm, prepared) = prepare(&device, config.clone(), &problem());
        let streams = [Stream::new(&device).unwrap(), Stream::new(&device).unwrap()];
        // Different operands: partial sums of the other graph would show.
        let mut operands =
            [3, 4].map(|seed| MatrixSet::new(&config, &problem(), Fill::Normal, seed, &streams[0]));
        let eager = operands.each_ref().map(|operands| {
            run(&gemm, &prepared, operands, streams[0].as_ref());
            operands.result(streams[0].as_ref())
        });
        assert!(eager.iter().zip(&operands).all(|(d, operands)| operands.compare(d).passed));
        let before = prepared.workspace_bytes();
        let mut graphs = [0, 1].map(|index: usize| {
            let record = |stream: StreamRef<'_>| {
                (0..runs).for_each(|_| run(&gemm, &prepared, &operands[index], stream));
                Ok(())
            };
            // SAFETY: problem and operands outlive the graph's last replay, which is waited for.
            unsafe { Graph::capture(&device, streams[index].as_ref(), record) }.unwrap()
        });
        // One for the eager runs, and one for each capture.
        assert_eq!(prepared.workspace_bytes(), 3 * before);
        for round in 0..by_device(50, 2) {
            for (operands, stream) in operands.iter_mut().zip(&streams) {
                operands.poison(stream.as_ref());
            }
            for (graph, stream) in graphs.iter_mut().zip(&streams) {
                graph.launch(stream.as_ref()).unwrap();
            }
            for index in [0, 1] {
                let d = operands[index].result(streams[index].as_ref());
                assert!(d.bytes() == eager[index].bytes(), "{split:?}, replay {round}");
            }
        }
    }
}

#[test]
fn workspaces_of_graphs_that_are_gone_are_used_again() {
    let captures = by_device(24, 6);
    let Some(device) = device("workspaces_of_graphs_that_are_gone") else { return };
    let config = config(Split::SplitK(4));
    let (gemm, prepared) = prepare(&device, config.clone(), &problem());
    let stream = Stream::new(&device).unwrap();
    let mut operands = MatrixSet::new(&config, &problem(), Fill::Normal, 5, &stream);
    run(&gemm, &prepared, &operands, stream.as_ref());
    let eager = operands.result(stream.as_ref());
    let each = prepared.workspace_bytes();
    for _ in 0..captures {
        let record = |stream: StreamRef<'_>| {
            run(&gemm, &prepared, &operands, stream);
            Ok(())
        };
        // SAFETY: problem and operands outlive the graph, whose only replay is waited for.
        let graph = unsafe { Graph::capture(&device, stream.as_ref(), record) };
        let mut graph = graph.unwrap();
        operands.poison(stream.as_ref());
        graph.launch(stream.as_ref()).unwrap();
        assert!(operands.result(stream.as_ref()).bytes() == eager.bytes());
        drop(graph);
        // The driver says some time later that the graph is gone.
        sleep(Duration::from_millis(20));
    }
    let held = prepared.workspace_bytes() / each;
    assert!(held < captures / 2, "{held} workspaces after {captures} captures, one at a time");
}

#[test]
fn sums_have_one_order_whatever_else_runs() {
    let Some(device) = device("sums_have_one_order") else { return };
    let noise = Noise::new(&device);
    let stream = Stream::new(&device).unwrap();
    for (config, problem) in cases() {
        let (gemm, prepared) = prepare(&device, config.clone(), &problem);
        let mut operands = MatrixSet::new(&config, &problem, Fill::Normal, 6, &stream);
        run(&gemm, &prepared, &operands, stream.as_ref());
        let first = operands.result(stream.as_ref());
        let comparison = operands.compare(&first);
        assert!(comparison.passed, "{config:?} {problem:?}\n{comparison}");
        for round in 0..by_device(100, 2) {
            operands.poison(stream.as_ref());
            noise.go_on(round);
            run(&gemm, &prepared, &operands, stream.as_ref());
            let d = operands.result(stream.as_ref());
            assert!(d.bytes() == first.bytes(), "{config:?} {problem:?}, run {round}");
        }
        noise.stream.synchronize().unwrap();
    }
}

#[test]
fn sums_in_any_order_are_right() {
    let Some(device) = device("sums_in_any_order") else { return };
    let noise = Noise::new(&device);
    let stream = Stream::new(&device).unwrap();
    for (config, problem) in cases() {
        let config = config.with_unordered(true);
        let (gemm, prepared) = prepare(&device, config.clone(), &problem);
        assert!(prepared.plan().unordered, "{:?}", prepared.plan());
        for fill in [Fill::Normal, Fill::Integers] {
            let mut operands = MatrixSet::new(&config, &problem, fill, 7, &stream);
            for round in 0..by_device(10, 1) {
                operands.poison(stream.as_ref());
                noise.go_on(round);
                run(&gemm, &prepared, &operands, stream.as_ref());
                operands.check(stream.as_ref());
            }
        }
    }
}

#[test]
fn threads_and_streams_share_one_split_problem() {
    let streams = by_device(4, 2);
    let Some(device) = device("threads_and_streams_share") else { return };
    for split in [Split::SplitK(4), Split::StreamK] {
        let config = large(split);
        let (gemm, prepared) = prepare(&device, config.clone(), &problem());
        let each = prepared.workspace_bytes();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (gemm, prepared, config, device) = (&gemm, &prepared, &config, &device);
                scope.spawn(move || {
                    let mut sets: Vec<(Stream, MatrixSet)> = (0..streams)
                        .map(|index| {
                            let stream = Stream::new(device).unwrap();
                            let seed = thread * streams + index;
                            let fill = Fill::Integers;
                            let operands = MatrixSet::new(config, &problem(), fill, seed, &stream);
                            (stream, operands)
                        })
                        .collect();
                    for _ in 0..by_device(5, 1) {
                        for (stream, operands) in &mut sets {
                            operands.poison(stream.as_ref());
                            (0..by_device(10, 1))
                                .for_each(|_| run(gemm, prepared, operands, stream.as_ref()));
                        }
                        sets.iter().for_each(|(stream, operands)| operands.check(stream.as_ref()));
                    }
                });
            }
        });
        assert_eq!(prepared.workspace_bytes(), 4 * streams * each, "one for each stream");
    }
}
