//! Attention on the emulator, compared with binary64 within a bound that follows from the roundings
//! of the kernel.

#[path = "../../kernels/tests/common/clean.rs"]
mod clean;
#[path = "common/attention.rs"]
mod reference;

use half::bf16;
use persistent_gemm::program::Emulation;
use pgemm_examples::attention::{Attention, Gradients, Of, statistics, statistics_length};
use reference::random::Random;
use reference::{Inputs, Problem};

#[test]
fn assemblers_take_them_without_spills() {
    let programs = [64, 128].into_iter().flat_map(|head_dim| {
        let causal = [false, true].into_iter().flat_map(move |causal| {
            let gradients = |of| Gradients::new(of, head_dim, causal).program().unwrap();
            let forward = Attention::new(head_dim, causal).program().unwrap();
            [forward, gradients(Of::KeysAndValues), gradients(Of::Queries)]
        });
        causal.chain([statistics(head_dim).unwrap()])
    });
    clean::assert_clean(&clean::assemblers(), programs.map(|program| program.kernel().clone()));
}

/// Checks every row.
#[track_caller]
fn check(problem: &Problem, inputs: [&[bf16]; 3], output: &[bf16], logs: &[f32]) {
    let Problem { head_dim, sequences, heads, queries, .. } = *problem;
    let places = places(sequences, heads, queries);
    for ((place, output), log) in places.zip(output.chunks(head_dim)).zip(logs) {
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
    let of_queries = [("q", q_array.address()), ("o", o.address())];
    let of_keys = [("k", k_array.address()), ("v", v_array.address())];
    let arguments = problem.maps(program.arguments(), &of_queries, &of_keys);
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

/// The places of a matrix in the order of memory.
fn places(sequences: usize, heads: usize, positions: usize) -> impl Iterator<Item = [usize; 3]> {
    let heads =
        (0..sequences).flat_map(move |sequence| (0..heads).map(move |head| (sequence, head)));
    heads.flat_map(move |(sequence, head)| (0..positions).map(move |at| [sequence, head, at]))
}

/// Checks the gradients of every query, key and value.
fn run_gradients(problem: &Problem) {
    let Problem { head_dim, causal, sequences, heads, kv_heads, queries, keys } = *problem;
    let [q, k, v] = problem.inputs();
    let d_o = Random::new(2).normals(q.len());
    // The outputs as a kernel rounds them.
    let all: Vec<_> = places(sequences, heads, queries)
        .map(|place| reference::row(problem, [&q, &k, &v], place))
        .collect();
    let o: Vec<bf16> =
        all.iter().flat_map(|row| row.output.iter().map(|value| bf16::from_f64(*value))).collect();
    let lse: Vec<f32> = all.iter().map(|row| row.log as f32).collect();

    let mut emulation = Emulation::new();
    let named = [("q", &q), ("k", &k), ("v", &v), ("o", &o), ("d_o", &d_o)];
    let [on_q, on_k, on_v, on_o, on_d_o] =
        named.map(|(name, values)| emulation.constant(name, values).address());
    let on_lse = emulation.constant("lse", &lse).address();
    let numbers = statistics_length(queries, heads, sequences);
    let numbers = emulation.unwritten::<f32>("statistics", numbers).address();
    let program = statistics(head_dim as u32).unwrap();
    let addresses = [("o", on_o), ("d_o", on_d_o), ("lse", on_lse), ("statistics", numbers)];
    let arguments = problem.statistics(program.arguments(), addresses);
    emulation.run(&program, problem.grid_of_statistics(), &arguments).unwrap();

    let gradients = [("d_q", q.len()), ("d_k", k.len()), ("d_v", v.len())];
    let [d_q, d_k, d_v] = gradients.map(|(name, length)| emulation.unwritten::<bf16>(name, length));
    for of in [Of::KeysAndValues, Of::Queries] {
        let kernel = Gradients::new(of, head_dim as u32, causal);
        let program = kernel.program().unwrap();
        let arguments = problem.scalars(program.arguments()).with("statistics", numbers).unwrap();
        let (mut of_queries, mut of_keys) =
            (vec![("q", on_q), ("d_o", on_d_o)], vec![("k", on_k), ("v", on_v)]);
        match of {
            Of::KeysAndValues => of_keys.extend([("d_k", d_k.address()), ("d_v", d_v.address())]),
            Of::Queries => of_queries.push(("d_q", d_q.address())),
        }
        let arguments = problem.maps(arguments, &of_queries, &of_keys);
        emulation.run(&program, problem.grid_of(&kernel), &arguments).unwrap();
    }

    let inputs = Inputs { q: &q, k: &k, v: &v, o: &o, d_o: &d_o, lse: &lse };
    let [d_q, d_k, d_v] = [d_q, d_k, d_v].map(|array| emulation.read(&array).unwrap());
    let scale = f64::from(problem.scale());
    let rows = |array: &[bf16]| array.chunks(head_dim).map(<[bf16]>::to_vec).collect::<Vec<_>>();
    for (place, found) in places(sequences, heads, queries).zip(rows(&d_q)) {
        problem.gradient_of_query(&inputs, place).check(scale, &found, "query", place);
    }
    for (place, (d_k, d_v)) in
        places(sequences, kv_heads, keys).zip(rows(&d_k).into_iter().zip(rows(&d_v)))
    {
        let [of_key, of_value] = problem.gradients_of_key(&inputs, place);
        of_key.check(scale, &d_k, "key", place);
        of_value.check(1.0, &d_v, "value", place);
    }
}

#[test]
fn gradients_of_heads_of_128() {
    for (causal, sequences, queries, keys) in
        [(false, 2, 100, 150), (true, 1, 150, 230), (true, 1, 200, 140)]
    {
        let problem =
            Problem { head_dim: 128, causal, sequences, heads: 2, kv_heads: 1, queries, keys };
        run_gradients(&problem);
    }
}

#[test]
fn gradients_of_heads_of_64() {
    for (causal, queries, keys) in [(false, 130, 1), (true, 66, 300), (true, 257, 257)] {
        let problem =
            Problem { head_dim: 64, causal, sequences: 1, heads: 4, kv_heads: 2, queries, keys };
        run_gradients(&problem);
    }
}
