//! The examples with a small problem each. Results are compared with those of the kernel without a
//! fault, which other tests compare with references.

use half::bf16;
use persistent_gemm::language::{Element, TensorMapArgument};
use persistent_gemm::program::{Arguments, EmulatedArray, Emulation, Program};
use pgemm_emulator::{Options, Statistics};
use pgemm_examples::attention::{Attention, Gradients, Of, statistics_length};
use pgemm_examples::dual_gemm::{DualGemm, DualProblem};
use pgemm_examples::gemm::{PING_PONG_TILE, TILE, gemm, ping_pong};
use pgemm_examples::histogram::{BINS, histogram};
use pgemm_examples::norm::rms_norm;
use pgemm_examples::row_maxima::{MaximaProblem, RowMaxima};
use pgemm_examples::softmax::softmax;
use pgemm_examples::top_k::top_k;
use pgemm_examples::transpose::{tile, transpose};
use pgemm_ir::Kernel;

use crate::judge::{Run, Subject};

/// A launch in the memory of an emulation: its grid, its arguments, and the arrays of its results.
type Launch = ([u32; 3], Arguments, Vec<EmulatedArray<u8>>);

/// Puts a problem into memory.
type Prepare = Box<dyn Fn(&Program, &mut Emulation) -> Launch + Send + Sync>;

/// A kernel with its problem.
pub struct Example {
    pub name: &'static str,
    pub program: Program,
    prepare: Prepare,
    /// Launches, one after the other.
    launches: u32,
}

impl Example {
    fn new(
        name: &'static str,
        program: Program,
        prepare: impl Fn(&Program, &mut Emulation) -> Launch + Send + Sync + 'static,
    ) -> Example {
        Example { name, program, prepare: Box::new(prepare), launches: 1 }
    }

    pub fn subject(self) -> Subject {
        let Example { name, program, prepare, launches } = self;
        let kernel = program.kernel().clone();
        let solve = move |kernel: &Kernel, options: Options| {
            let program = Program::new(kernel.clone())?;
            let mut emulation = Emulation::with_options(options);
            let (grid, arguments, results) = prepare(&program, &mut emulation);
            let mut statistics = emulation.run(&program, grid, &arguments)?;
            for _ in 1..launches {
                statistics = emulation.run(&program, grid, &arguments)?;
            }
            let results = results.iter().map(|result| emulation.read(result));
            Ok::<_, persistent_gemm::Error>((statistics, results.collect::<Result<Vec<_>, _>>()?))
        };
        let (_, expected) = solve(&kernel, Options::default()).unwrap();
        let run: Run = Box::new(move |kernel, options| -> Result<Statistics, String> {
            let (statistics, found) = solve(kernel, options).map_err(|error| error.to_string())?;
            if found == expected { Ok(statistics) } else { Err("wrong result".into()) }
        });
        Subject { name: name.to_owned(), kernel, runs: vec![run] }
    }
}

/// Small integers.
fn integers(count: usize, seed: usize) -> Vec<bf16> {
    (0..count).map(|i| bf16::from_f32(((i * 7 + seed + i / 11) % 5) as f32 - 2.0)).collect()
}

/// The tensor map of a packed array of bf16, whose extents are written innermost first.
fn map(address: u64, extents: &[usize]) -> TensorMapArgument {
    let extents: Vec<u64> = extents.iter().map(|&extent| extent as u64).collect();
    TensorMapArgument::packed(address, Element::Bf16, &extents)
}

/// Room for a result, full of NaNs.
fn result(emulation: &mut Emulation, name: &str, bytes: usize) -> EmulatedArray<u8> {
    emulation.array(name, &vec![0xff; bytes])
}

/// All examples.
pub fn all() -> Vec<Example> {
    vec![
        rows("softmax", softmax(1000).unwrap(), false),
        rows("rms_norm", rms_norm(1000).unwrap(), true),
        bytes(),
        largest(),
        transposition(),
        product("gemm", gemm().unwrap()),
        product("ping_pong", ping_pong().unwrap()),
        attention("attention_64", Attention::new(64, true)),
        attention("attention_128", Attention::new(128, false)),
        gradients("gradients_of_keys", Of::KeysAndValues),
        gradients("gradients_of_queries", Of::Queries),
        dual(),
        maxima("row_maxima", RowMaxima::new(RowMaxima::WIDE, false).unwrap(), [0, 0]),
        Example {
            // The second launch finds the counters of the first.
            launches: 2,
            ..maxima("row_maxima_split", RowMaxima::new(RowMaxima::SPLIT, true).unwrap(), [2, 5])
        },
    ]
}

/// A kernel of rows. A norm has weights, too.
fn rows(name: &'static str, program: Program, weighted: bool) -> Example {
    const COLUMNS: usize = 1000;
    Example::new(name, program, move |program, emulation| {
        let x = emulation.constant("x", &integers(2 * COLUMNS, 0));
        let y = result(emulation, "y", 2 * COLUMNS * 2);
        let arguments = program.arguments().with("x", &x).unwrap().with("y", &y).unwrap();
        if !weighted {
            return ([2, 1, 1], arguments, vec![y]);
        }
        let w = emulation.constant("w", &integers(COLUMNS, 3));
        let arguments = arguments.with("w", &w).unwrap().with("epsilon", 1e-5f32).unwrap();
        ([2, 1, 1], arguments, vec![y])
    })
}

/// The histogram.
fn bytes() -> Example {
    Example::new("histogram", histogram().unwrap(), |program, emulation| {
        let bytes: Vec<u8> = (0..4096u32).map(|i| (i * i / 7) as u8).collect();
        let input = emulation.constant("bytes", &bytes);
        let bins = emulation.array("bins", &[0u8; BINS as usize * 4]);
        let arguments = program.arguments().with("bytes", &input).unwrap();
        let arguments = arguments.with("bins", &bins).unwrap();
        let arguments = arguments.with("vectors", bytes.len() as u32 / 16).unwrap();
        ([2, 1, 1], arguments, vec![bins])
    })
}

fn largest() -> Example {
    const COLUMNS: usize = 256;
    const K: usize = 8;
    Example::new("top_k", top_k(COLUMNS as u32, K as u32).unwrap(), |program, emulation| {
        let x = emulation.constant("x", &integers(2 * COLUMNS, 0));
        let values = result(emulation, "values", 2 * K * 2);
        let columns = result(emulation, "columns", 2 * K * 4);
        let arguments = program.arguments().with("x", &x).unwrap();
        let arguments = arguments.with("values", &values).unwrap();
        let arguments = arguments.with("columns", &columns).unwrap();
        ([2, 1, 1], arguments, vec![values, columns])
    })
}

fn transposition() -> Example {
    const ROWS: u32 = 68;
    const COLUMNS: u32 = 140;
    Example::new("transpose", transpose(Element::Bf16, 4).unwrap(), |program, emulation| {
        let values: Vec<u16> = (0..ROWS * COLUMNS).map(|i| (i * 3) as u16).collect();
        let x = emulation.constant("x", &values);
        let y = result(emulation, "y", values.len() * 2);
        let arguments = program.arguments().with("x", &x).unwrap().with("y", &y).unwrap();
        let arguments = arguments.with("rows", ROWS).unwrap().with("columns", COLUMNS).unwrap();
        let tile = tile(Element::Bf16);
        ([COLUMNS.div_ceil(tile), ROWS.div_ceil(tile), 1], arguments, vec![y])
    })
}

/// A GEMM, so deep that the ring wraps. In the persistent kernel a CTA has several tiles.
fn product(name: &'static str, program: Program) -> Example {
    let is_persistent = name == "ping_pong";
    let [m, n, k] = if is_persistent { [400, 264, 64 * 7] } else { [130, 264, 64 * 7] };
    Example::new(name, program, move |program, emulation| {
        let a = emulation.constant("a", &integers(m * k, 0));
        let b = emulation.constant("b", &integers(n * k, 3));
        let d = result(emulation, "d", m * n * 2);
        let arguments = program.arguments().with("a", map(a.address(), &[k, m])).unwrap();
        let arguments = arguments.with("b", map(b.address(), &[k, n])).unwrap();
        let arguments = arguments.with("d", map(d.address(), &[n, m])).unwrap();
        let arguments = arguments.with("k", k as u32).unwrap();
        let tiles =
            |[rows, columns]: [u32; 2]| [(m as u32).div_ceil(rows), (n as u32).div_ceil(columns)];
        if !is_persistent {
            let [rows, columns] = tiles(TILE);
            return ([rows, columns, 1], arguments, vec![d]);
        }
        let [rows, columns] = tiles(PING_PONG_TILE);
        let arguments = arguments.with("rows", rows).unwrap().with("columns", columns).unwrap();
        ([2, 1, 1], arguments, vec![d])
    })
}

fn attention(name: &'static str, attention: Attention) -> Example {
    const HEADS: usize = 2;
    let head_dim = if name == "attention_64" { 64 } else { 128 };
    // So many keys that a barrier that counts too few arrivals, of which each round then begins
    // with one more, ends up a whole warpgroup ahead.
    let [queries, keys] = [200, 3000];
    Example::new(name, attention.program().unwrap(), move |program, emulation| {
        let [q, k, v] = [("q", HEADS, queries), ("k", 1, keys), ("v", 1, keys)].map(
            |(name, heads, positions)| {
                let values = integers(heads * positions * head_dim, name.len());
                let address = emulation.constant(name, &values).address();
                (name, map(address, &[head_dim, positions, heads, 1]))
            },
        );
        let o = result(emulation, "o", HEADS * queries * head_dim * 2);
        let lse = result(emulation, "lse", HEADS * queries * 4);
        let outputs = ("o", map(o.address(), &[head_dim, queries, HEADS, 1]));
        let mut arguments = program.arguments();
        for (name, map) in [q, k, v, outputs] {
            arguments = arguments.with(name, map).unwrap();
        }
        let numbers =
            [("queries", queries as u32), ("keys", keys as u32), ("heads_per_kv", HEADS as u32)];
        for (name, number) in numbers {
            arguments = arguments.with(name, number).unwrap();
        }
        let arguments = arguments.with("scale", 0.125f32).unwrap().with("lse", &lse).unwrap();
        (attention.grid(queries as u32, HEADS as u32, 1), arguments, vec![o, lse])
    })
}

fn gradients(name: &'static str, of: Of) -> Example {
    const HEADS: usize = 2;
    const DIM: usize = 64;
    // So many that the ring wraps.
    let [queries, keys] = [200, 700];
    let kernel = Gradients::new(of, DIM as u32, true);
    Example::new(name, kernel.program().unwrap(), move |program, emulation| {
        let sides = [(HEADS, queries), (1, keys)];
        let mut arguments = program.arguments();
        for (name, side) in [("q", 0), ("d_o", 0), ("k", 1), ("v", 1)] {
            let (heads, positions) = sides[side];
            let values = integers(heads * positions * DIM, name.len());
            let address = emulation.constant(name, &values).address();
            let map = map(address, &[DIM, positions, heads, 1]);
            arguments = arguments.with(name, map).unwrap();
        }
        let numbers = statistics_length(queries, HEADS, 1);
        let numbers: Vec<f32> = (0..numbers).map(|at| (at % 7) as f32 - 6.0).collect();
        let numbers = emulation.constant("statistics", &numbers);
        let (names, side, rows, heads) = match of {
            Of::KeysAndValues => (vec!["d_k", "d_v"], 1, keys, 1),
            Of::Queries => (vec!["d_q"], 0, queries, HEADS),
        };
        let mut results = vec![];
        for name in names {
            let (heads, positions) = sides[side];
            let array = result(emulation, name, heads * positions * DIM * 2);
            let map = map(array.address(), &[DIM, positions, heads, 1]);
            arguments = arguments.with(name, map).unwrap();
            results.push(array);
        }
        let arguments = arguments.with("statistics", &numbers).unwrap();
        let arguments = arguments.with("queries", queries as u32).unwrap();
        let arguments = arguments.with("keys", keys as u32).unwrap();
        let arguments = arguments.with("heads_per_kv", HEADS as u32).unwrap();
        let arguments = arguments.with("scale", 0.125f32).unwrap();
        (kernel.grid(rows as u32, heads as u32, 1), arguments, results)
    })
}

fn dual() -> Example {
    let kernel = DualGemm::new().unwrap();
    let program = kernel.program.clone();
    let [tokens, hidden, model] = [300, 264, 64 * 9];
    Example::new("dual_gemm", program, move |program, emulation| {
        let out = result(emulation, "out", tokens * hidden * 2);
        let mut upload =
            |name, count, seed| emulation.constant(name, &integers(count, seed)).address();
        let problem = DualProblem {
            x: upload("x", tokens * model, 0),
            weights: [upload("gate", hidden * model, 1), upload("up", hidden * model, 2)],
            out: out.address(),
            tokens: tokens as u32,
            hidden: hidden as u32,
            model: model as u32,
        };
        let (grid, arguments) = kernel.launch(&problem, 4, program.arguments()).unwrap();
        (grid, arguments, vec![out])
    })
}

fn maxima(name: &'static str, kernel: RowMaxima, split: [u32; 2]) -> Example {
    let program = kernel.program.clone();
    let [rows, columns, depth] = if split[0] == 0 { [300, 500, 320] } else { [200, 120, 64 * 20] };
    Example::new(name, program, move |program, emulation| {
        let width = kernel.candidates(columns as u32) as usize;
        let values = result(emulation, "values", rows * width * 4);
        let indices = result(emulation, "indices", rows * width * 4);
        let problem = MaximaProblem {
            a: emulation.constant("a", &integers(rows * depth, 4)).address(),
            b: emulation.constant("b", &integers(columns * depth, 5)).address(),
            values: values.address(),
            indices: indices.address(),
            rows: rows as u32,
            columns: columns as u32,
            depth: depth as u32,
            split,
            workspace: 0,
        };
        let bytes = kernel.workspace(&problem).bytes as usize;
        let workspace: EmulatedArray<u8> = emulation.array("workspace", &vec![0; bytes]);
        let problem = MaximaProblem { workspace: workspace.address(), ..problem };
        let (grid, arguments) = kernel.launch(&problem, 3, program.arguments()).unwrap();
        (grid, arguments, vec![values, indices])
    })
}
