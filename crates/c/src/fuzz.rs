//! The structs of the ABI with any numbers, and the texts that configs point to.

use std::ptr::null;

use pgemm_fuzz::targets::Target;

use crate::abi;
use crate::config::{ConfigStrings, Requested, compile};
use crate::problem::problem;

const STRUCTS: Target = Target { name: "c-structs", run: structs, made };

/// Numbers from the front of an input of bytes; zeros behind its end.
struct Numbers<'i>(&'i [u8]);

impl Numbers<'_> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let (front, rest) = self.0.split_at(N.min(self.0.len()));
        self.0 = rest;
        let mut bytes = [0; N];
        bytes[..front.len()].copy_from_slice(front);
        bytes
    }

    fn i32(&mut self) -> i32 {
        i32::from_le_bytes(self.bytes())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    fn i64(&mut self) -> i64 {
        i64::from_le_bytes(self.bytes())
    }

    fn config(&mut self) -> abi::Config {
        abi::Config {
            struct_size: size_of::<abi::Config>(),
            dtype_a: self.i32(),
            dtype_b: self.i32(),
            dtype_c: self.i32(),
            precision: self.i32(),
            tile_m: self.u32(),
            tile_n: self.u32(),
            tile_k: self.u32(),
            persistent: self.i32(),
            cluster_m: self.u32(),
            cluster_n: self.u32(),
            warps_per_block: self.u32(),
            prefetch_depth: self.u32(),
            raster_rows: self.u32(),
            schedule: self.i32(),
            swapped: self.i32(),
            unordered: self.i32(),
            dependent_launch: self.i32(),
            sms: self.u32(),
            device: self.i32(),
            split: null(),
            kernel: null(),
            autotune_file: null(),
            epilogue: null(),
        }
    }

    fn problem(&mut self) -> abi::Problem {
        abi::Problem {
            struct_size: size_of::<abi::Problem>(),
            m: self.i64(),
            n: self.i64(),
            k: self.i64(),
            lda: self.i64(),
            ldb: self.i64(),
            ldc: self.i64(),
            ldd: self.i64(),
            layout_a: self.i32(),
            layout_b: self.i32(),
            layout_c: self.i32(),
            alpha: f64::from_le_bytes(self.bytes()),
            beta: f64::from_le_bytes(self.bytes()),
            batch: self.i64(),
            batch_stride_a: self.i64(),
            batch_stride_b: self.i64(),
            batch_stride_c: self.i64(),
            batch_stride_d: self.i64(),
            bias: null(),
        }
    }
}

/// A config and a problem, field by field, and the config's texts, one on each line.
fn structs(input: &[u8]) -> bool {
    let mut numbers = Numbers(input);
    let (config, product) = (numbers.config(), numbers.problem());
    let Ok(texts) = str::from_utf8(numbers.0) else { return false };
    let mut texts = texts.split('\n').map(|text| (!text.is_empty()).then(|| text.to_owned()));
    let mut next = || texts.next().flatten();
    let strings =
        ConfigStrings { split: next(), kernel: next(), autotune_file: next(), epilogue: next() };
    let _any_number_has_an_answer = compile(config.dtype_a);
    let problem = problem(&product);
    problem.is_ok_and(|problem| problem.validate().is_ok())
        & Requested::new(&config, strings).is_ok()
}

/// An input by its numbers, in the order of the fields, and its texts.
fn input(
    config: [i32; 19],
    extents: [i64; 7],
    majors: [i32; 3],
    batch: [i64; 5],
    texts: &str,
) -> Vec<u8> {
    let factors = [1f64, 0.5].map(f64::to_le_bytes);
    [
        config.map(i32::to_le_bytes).concat(),
        extents.map(i64::to_le_bytes).concat(),
        majors.map(i32::to_le_bytes).concat(),
        factors.concat(),
        batch.map(i64::to_le_bytes).concat(),
        texts.as_bytes().to_vec(),
    ]
    .concat()
}

fn made() -> Vec<Vec<u8>> {
    let tight = abi::PGEMM_TIGHT;
    let one = [1, tight, tight, tight, tight];
    let config = |tile: [i32; 3]| {
        let mut config = [0; 19];
        config[0] = abi::PGEMM_BF16;
        config[4..7].copy_from_slice(&tile);
        config[7] = 1; // persistent
        config[18] = abi::PGEMM_CURRENT_DEVICE;
        config
    };
    let extents = |leading_dimension| {
        let [m, n, k] = [96, 64, 32];
        [m, n, k, leading_dimension, leading_dimension, leading_dimension, leading_dimension]
    };
    let kernel = "\nbf16-kkm-bf16-64x16x64-s16-w1-c1x1";
    let columns = abi::PGEMM_COLUMN_MAJOR;
    vec![
        input(config([0; 3]), extents(tight), [0; 3], one, ""),
        input(config([128, 128, 64]), extents(100), [0; 3], one, "whole\n\noff\nbias_n|silu"),
        input(
            config([0; 3]),
            extents(96),
            [columns; 3],
            [3, abi::PGEMM_SAME, tight, tight, tight],
            "split-3\n\n\nclamp(0,6)",
        ),
        input(config([0; 3]), extents(tight), [0, columns, 0], one, kernel),
    ]
}

#[test]
fn structs_of_any_numbers_are_read_or_refused() {
    for input in made() {
        assert!(structs(&input), "{}", input.escape_ascii());
    }
    pgemm_fuzz::test(&STRUCTS);
}
