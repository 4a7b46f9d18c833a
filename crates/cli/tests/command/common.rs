//! Runs the command, and writes and reads `.npy` files without the command's own code.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What a run of the command gave.
pub struct Run {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `pgemm`.
pub fn pgemm<I: IntoIterator<Item: AsRef<OsStr>>>(arguments: I) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pgemm"));
    command.args(arguments).env_remove("PGEMM_LOG");
    finish(command.output().unwrap())
}

/// Runs `pgemm` with the words of one line.
pub fn line(words: &str) -> Run {
    pgemm(words.split_whitespace())
}

pub fn finish(output: Output) -> Run {
    let run = Run {
        // A process killed by a signal has no status: that is no answer of the command.
        status: output.status.code().expect("killed by a signal"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    };
    assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
    run
}

impl Run {
    /// Asserts that it ended well.
    #[track_caller]
    pub fn fine(self) -> Run {
        assert_eq!(self.status, 0, "{}{}", self.stdout, self.stderr);
        self
    }

    /// Asserts that the request was refused, with a message that has all of these parts and nothing
    /// on stdout.
    #[track_caller]
    pub fn refused(self, parts: &[&str]) -> Run {
        assert_eq!(self.status, 2, "{}{}", self.stdout, self.stderr);
        assert_eq!(self.stdout, "");
        for part in parts {
            assert!(self.stderr.contains(part), "'{part}' is missing in: {}", self.stderr);
        }
        self
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }

    pub fn last_line(&self) -> &str {
        self.stdout.lines().last().unwrap_or("")
    }
}

/// Where the files lie that numpy itself wrote.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// A row-major matrix.
#[derive(Clone)]
pub struct Matrix {
    pub rows: usize,
    pub columns: usize,
    pub values: Vec<f64>,
}

impl Matrix {
    /// Values between -1 and 1 from a linear congruence.
    pub fn pseudo_random(rows: usize, columns: usize, seed: u64) -> Matrix {
        let mut state = seed;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / 2f64.powi(52) - 1.0
        };
        Matrix { rows, columns, values: (0..rows * columns).map(|_| next()).collect() }
    }

    /// The values that a file of this type keeps.
    pub fn rounded(mut self, round: impl Fn(f64) -> f64) -> Matrix {
        self.values.iter_mut().for_each(|value| *value = round(*value));
        self
    }

    /// The product in double precision, and the product of magnitudes.
    pub fn times(&self, other: &Matrix) -> (Matrix, Matrix) {
        let (rows, columns) = (self.rows, other.columns);
        let mut product = Matrix { rows, columns, values: vec![0.0; rows * columns] };
        let mut magnitudes = product.clone();
        for row in 0..rows {
            let line = row * columns..(row + 1) * columns;
            let (sums, sizes) = (&mut product.values[line.clone()], &mut magnitudes.values[line]);
            for inner in 0..self.columns {
                let left = self.values[row * self.columns + inner];
                let right = &other.values[inner * columns..(inner + 1) * columns];
                for ((sum, size), right) in sums.iter_mut().zip(sizes.iter_mut()).zip(right) {
                    *sum += left * right;
                    *size += (left * right).abs();
                }
            }
        }
        (product, magnitudes)
    }
}

/// Element types of the files written here.
#[derive(Clone, Copy, PartialEq)]
pub enum Float {
    F16,
    F32,
}

/// Writes version 1 of numpy's format.
pub fn write_npy(path: &Path, matrix: &Matrix, float: Float) {
    let descr = if float == Float::F16 { "<f2" } else { "<f4" };
    let (rows, columns) = (matrix.rows, matrix.columns);
    let mut header =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    // The data begins at a multiple of 64 bytes.
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    for &value in &matrix.values {
        match float {
            Float::F16 => bytes.extend(half::f16::from_f64(value).to_le_bytes()),
            Float::F32 => bytes.extend((value as f32).to_le_bytes()),
        }
    }
    std::fs::write(path, bytes).unwrap();
}

/// Reads a two-dimensional array of f16 or f32.
pub fn read_npy(path: &Path) -> (Matrix, Float) {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let data = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..data]).unwrap();
    let after = |key: &str| header.split(key).nth(1).unwrap();
    let shape: Vec<usize> = after("'shape': (")
        .split(')')
        .next()
        .unwrap()
        .split(',')
        .map(str::trim)
        .filter(|extent| !extent.is_empty())
        .map(|extent| extent.parse().unwrap())
        .collect();
    let [rows, columns] = shape[..] else { panic!("{header}") };
    let (float, stored): (Float, Vec<f64>) = match after("'descr': '").split('\'').next().unwrap() {
        "<f2" => (
            Float::F16,
            bytes[data..]
                .chunks_exact(2)
                .map(|pair| half::f16::from_le_bytes([pair[0], pair[1]]).to_f64())
                .collect(),
        ),
        "<f4" => (
            Float::F32,
            bytes[data..]
                .chunks_exact(4)
                .map(|four| f64::from(f32::from_le_bytes([four[0], four[1], four[2], four[3]])))
                .collect(),
        ),
        other => panic!("{other}"),
    };
    assert_eq!(stored.len(), rows * columns);
    let values = match after("'fortran_order': ").starts_with("True") {
        true => (0..rows * columns)
            .map(|index| stored[index % columns * rows + index / columns])
            .collect(),
        false => stored,
    };
    (Matrix { rows, columns, values }, float)
}
