//! Single sums: how they are run many at a time, and written down.

use pgemm_kernels::SumProbe;
use serde_json::json;

use super::run::Runner;

/// One sum, as the bits of its elements.
#[derive(Clone)]
pub struct Record {
    /// What it is to show.
    pub label: String,
    pub a: Vec<u64>,
    pub b: Vec<u64>,
    pub c: u64,
}

impl Record {
    /// A line of the file of findings.
    pub fn json(&self, name: &str, found: u64, expected: u64) -> serde_json::Value {
        json!({
            "kernel": name,
            "label": self.label,
            "a": words(&self.a),
            "b": words(&self.b),
            "c": format!("{:x}", self.c),
            "d": format!("{found:x}"),
            "model": format!("{expected:x}"),
        })
    }

    /// The same for people.
    pub fn line(&self, found: u64, expected: u64) -> String {
        let (a, b, c) = (words(&self.a), words(&self.b), self.c);
        format!("a {a} b {b} c {c:x} is {found:x}, by the model {expected:x}")
    }
}

fn words(bits: &[u64]) -> String {
    bits.iter().map(|bits| format!("{bits:x}")).collect::<Vec<_>>().join(" ")
}

/// The sums of all records. They lie on the diagonals of tiles.
pub fn run(probe: &SumProbe, records: &[Record], runner: &Runner<'_>) -> Vec<u64> {
    let (m, n, depth) =
        (SumProbe::M as usize, probe.instruction.n() as usize, probe.depth() as usize);
    let each = m.min(n);
    let tiles = records.len().div_ceil(each);
    let (mut a, mut b, mut c) =
        (vec![0; tiles * m * depth], vec![0; tiles * n * depth], vec![0; tiles * m * n]);
    let place = |at: usize| (at / each, at % each);
    for (at, record) in records.iter().enumerate() {
        let (tile, line) = place(at);
        a[(tile * m + line) * depth..][..depth].copy_from_slice(&record.a);
        b[(tile * n + line) * depth..][..depth].copy_from_slice(&record.b);
        c[(tile * m + line) * n + line] = record.c;
    }
    let found = runner(probe, [&a, &b, &c], true);
    let sum = |at| {
        let (tile, line) = place(at);
        found[(tile * m + line) * n + line]
    };
    (0..records.len()).map(sum).collect()
}
