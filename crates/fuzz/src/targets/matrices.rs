//! Files of matrices.

use std::fs;
use std::path::Path;

use persistent_gemm::{Dtype, HostMatrix, MatrixLayout};
use pgemm_files::{Location, read, read_vector, write};

use super::files::{FOLDER, file};

/// A location's text is one that has the same meaning.
pub(super) fn location(input: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(input) else { return false };
    let Ok(location) = text.parse::<Location>() else { return false };
    assert_eq!(location.to_string().parse::<Location>().unwrap(), location);
    true
}

pub(super) fn locations() -> Vec<Vec<u8>> {
    ["a.npy", "a.safetensors", "folder/a.safetensors:layer.0.weight", "a.safetensors:"]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
}

pub(super) fn npy(input: &[u8]) -> bool {
    is_read(&Location::Npy(file("matrix.npy", input)))
}

/// The file has one tensor, or one called `a`.
pub(super) fn safetensors(input: &[u8]) -> bool {
    let path = file("matrix.safetensors", input);
    let named = Location::Safetensors { path: path.clone(), tensor: Some("a".to_owned()) };
    is_read(&Location::Safetensors { path, tensor: None }) | is_read(&named)
}

/// Whether the file holds a matrix. If so, it also has the same one as a vector's reader sees.
fn is_read(location: &Location) -> bool {
    let (matrix, vector) = (read(location), read_vector(location));
    if let Ok(matrix) = &matrix {
        assert_eq!(matrix.bytes(), vector.as_ref().unwrap().bytes());
    }
    vector.is_ok()
}

/// A file with a matrix of each type, as the library writes it.
fn written(name: &str, dtypes: &[Dtype]) -> Vec<Vec<u8>> {
    let location: Location = FOLDER.path().join(name).to_str().unwrap().parse().unwrap();
    let (Location::Npy(path) | Location::Safetensors { path, .. }) = &location;
    let of = |dtype: &Dtype| {
        // A file of another type would be refused as a target.
        remove(path);
        let mut matrix = HostMatrix::zeros(MatrixLayout::row_major(3, 5), *dtype).unwrap();
        matrix.fill_integers(1, 8);
        write(&location, &matrix).unwrap();
        fs::read(path).unwrap()
    };
    dtypes.iter().map(of).collect()
}

fn remove(path: &Path) {
    if path.exists() {
        fs::remove_file(path).unwrap();
    }
}

pub(super) fn arrays() -> Vec<Vec<u8>> {
    written("made.npy", &[Dtype::F16, Dtype::F32, Dtype::F64, Dtype::S8, Dtype::S32])
}

pub(super) fn tensors() -> Vec<Vec<u8>> {
    written("made.safetensors:a", &[Dtype::Bf16, Dtype::F32, Dtype::E4m3, Dtype::U8])
}
