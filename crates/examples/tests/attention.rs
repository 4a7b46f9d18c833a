//! Attention on the emulator, compared with binary64 within a bound that follows from the roundings
//! of the kernel.

#[path = "../../kernels/tests/common/clean.rs"]
mod clean;
#[path = "common/attention.rs"]
mod reference;

use half::bf16;
use persistent_gemm::program::Emulation;
use pgemm_examples::attention::Attention;
use reference::Problem;

#[test]
fn assemblers_take_them_without_spills() {
    let kernels = [64, 128].into_iter().flat_map(|head_dim| {
        [false, true]
            .map(|causal| Attention::new(head_dim, causal).program().unwrap().kernel().clone())
    });
    clean::assert_clean(&clean::assemblers(), kernels);
}

/// Checks every row.
#[track_caller]
fn check(problem: &Problem, inputs: [&[bf16]; 3], output: &[bf16], logs: &[f32]) {
    let Problem { head_dim, sequences, heads, queries, .. } = *problem;
    let rows = (0..sequences).flat_map(|sequence| (0..heads).map(move |head| (sequence, head)));
    let rows = rows.flat_map(|(sequence, head)| (0..queries).map(move |at| [sequence, head, at]));
    for ((place, output), log) in rows.zip(output.chunks(head_dim)).zip(logs) {
        reference::check_row(
            &reference::row(problem, inputs, place),
            problem.keys,
            output,
            *log,
            place,
        );
    }
}

fn run(attention: Attention, problem: &Problem) {
    let program = attention.program().unwrap();
    let [q, k, v] = problem.inputs();
    let mut emulation = Emulation::new();
    let o = emulation.unwritten::<bf16>("o", q.len());
    let lse = emulation.unwritten::<f32>("lse", q.len() / problem.head_dim);
    let [q_array, k_array, v_array] =
        [("q", &q), ("k", &k), ("v", &v)].map(|(name, values)| emulation.constant(name, values));
    let map = |address, heads, positions| problem.map(address, heads, positions);
    let arguments = program
        .arguments()
        .with("q", map(q_array.address(), problem.heads, problem.queries))
        .unwrap()
        .with("k", map(k_array.address(), problem.kv_heads, problem.keys))
        .unwrap()
        .with("v", map(v_array.address(), problem.kv_heads, problem.keys))
        .unwrap()
        .with("o", map(o.address(), problem.heads, problem.queries))
        .unwrap();
    let arguments = problem.scalars(arguments).with("lse", &lse).unwrap();
    let grid =
        attention.grid(problem.queries as u32, problem.heads as u32, problem.sequences as u32);
    emulation.run(&program, grid, &arguments).unwrap();
    let (o, lse) = (emulation.read(&o).unwrap(), emulation.read(&lse).unwrap());
    check(problem, [&q, &k, &v], &o, &lse);
}

#[test]
fn heads_of_128() {
    for (causal, queries, keys) in [(false, 200, 300), (true, 200, 300), (true, 300, 200)] {
        let problem =
            Problem { head_dim: 128, causal, sequences: 2, heads: 2, kv_heads: 1, queries, keys };
        run(Attention::new(128, causal), &problem);
    }
}

#[test]
fn heads_of_64() {
    for (causal, queries, keys) in [(false, 130, 1), (true, 200, 513), (true, 385, 385)] {
        let problem =
            Problem { head_dim: 64, causal, sequences: 1, heads: 4, kv_heads: 2, queries, keys };
        run(Attention::new(64, causal), &problem);
    }
}
