//! Matrices in files: `.npy`, and tensors in `.safetensors`.

mod error;
pub mod memory;
mod npy;
mod safetensors;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use persistent_gemm::{Dtype, Error, HostMatrix, MatrixLayout, files};

pub use error::IoError;

/// The location of a matrix: `FILE.npy`, `FILE.safetensors` or `FILE.safetensors:TENSOR`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A numpy array.
    Npy(PathBuf),
    /// A tensor in a safetensors file.
    Safetensors {
        /// The file.
        path: PathBuf,
        /// The name of the tensor. Without a name, the file must have only one.
        tensor: Option<String>,
    },
}

impl Location {
    /// Checks that its format has this element type.
    ///
    /// # Errors
    /// numpy has no such type.
    pub fn check_holds(&self, dtype: Dtype) -> Result<(), IoError> {
        match (self, dtype) {
            (Location::Npy(path), dtype) if dtype == Dtype::Bf16 || dtype.is_float8() => {
                Err(IoError::NoNumpyType { path: path.clone(), dtype })
            }
            _ => Ok(()),
        }
    }

    /// The name that a tensor gets there.
    fn tensor_to_write(&self) -> &str {
        match self {
            Location::Safetensors { tensor: Some(tensor), .. } => tensor,
            _ => "D",
        }
    }

    fn path(&self) -> &Path {
        let (Location::Npy(path) | Location::Safetensors { path, .. }) = self;
        path
    }
}

/// Checks that a file can be written there, before its content is computed. Leaves no file behind.
///
/// # Errors
/// A folder is not there or not this user's to write to, or something else than a file has that
/// name, or a safetensors file that has other tensors or is damaged.
pub fn check_writable(location: &Location) -> Result<(), IoError> {
    let path = location.path();
    check_regular(path)?;
    let failed = |source| IoError::Write { path: path.to_owned(), source };
    // The folder is not created, so it has to be there.
    std::fs::metadata(files::folder_of(path)).map_err(failed)?;
    files::check_path(path).map_err(|error| match error {
        Error::Io { source, .. } => failed(source),
        other => failed(std::io::Error::other(other)),
    })?;
    match location {
        Location::Npy(_) => Ok(()),
        Location::Safetensors { path, .. } => {
            safetensors::check_replaceable(path, location.tensor_to_write()).map(drop)
        }
    }
}

fn check_regular(path: &Path) -> Result<(), IoError> {
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(IoError::NotAFile { path: path.to_owned() });
    }
    Ok(())
}

/// Writes a file that appears whole or not at all.
fn replace(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), IoError> {
    check_regular(path)?;
    files::replace(path, content).map_err(|source| IoError::Write { path: path.to_owned(), source })
}

/// Writes a file that appears whole or not at all.
///
/// # Errors
/// It cannot be written.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), IoError> {
    replace(path, |file| file.write_all(bytes))
}

impl FromStr for Location {
    type Err = IoError;

    fn from_str(text: &str) -> Result<Location, IoError> {
        const SEPARATOR: &str = ".safetensors:";
        if let Some(at) = text.find(SEPARATOR) {
            let (path, tensor) = (&text[..at + SEPARATOR.len() - 1], &text[at + SEPARATOR.len()..]);
            if tensor == safetensors::METADATA {
                return Err(IoError::ReservedName { tensor: safetensors::METADATA });
            }
            return Ok(Location::Safetensors {
                path: path.into(),
                tensor: Some(tensor.to_owned()),
            });
        }
        match Path::new(text).extension().and_then(|extension| extension.to_str()) {
            Some("npy") => Ok(Location::Npy(text.into())),
            Some("safetensors") => Ok(Location::Safetensors { path: text.into(), tensor: None }),
            _ => Err(IoError::UnknownFormat { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Npy(path) | Location::Safetensors { path, tensor: None } => {
                write!(f, "{}", path.display())
            }
            Location::Safetensors { path, tensor: Some(tensor) } => {
                write!(f, "{}:{tensor}", path.display())
            }
        }
    }
}

/// Reads a matrix in the element type and order of the file, without gaps.
///
/// # Errors
/// The file cannot be read, is damaged, or does not contain a matrix of a supported type.
pub fn read(location: &Location) -> Result<HostMatrix, IoError> {
    read_of(location, Dimensions::Two)
}

/// Reads a vector, or a matrix with one row or column. A vector becomes a row.
///
/// # Errors
/// The errors of [`read`].
pub fn read_vector(location: &Location) -> Result<HostMatrix, IoError> {
    read_of(location, Dimensions::OneOrTwo)
}

fn read_of(location: &Location, dimensions: Dimensions) -> Result<HostMatrix, IoError> {
    match location {
        Location::Npy(path) => npy::read(path, dimensions),
        Location::Safetensors { path, tensor } => {
            safetensors::read(path, tensor.as_deref(), dimensions)
        }
    }
}

/// How many dimensions an array in a file may have.
#[derive(Clone, Copy)]
enum Dimensions {
    /// Those of a matrix.
    Two,
    /// Also that of a vector, which is read as a row.
    OneOrTwo,
}

impl Dimensions {
    /// Rows and columns of an array of this shape.
    fn extents(self, what: &str, shape: &[u64]) -> Result<[u64; 2], IoError> {
        match (self, shape) {
            (_, &[rows, columns]) => Ok([rows, columns]),
            (Dimensions::OneOrTwo, &[length]) => Ok([1, length]),
            _ => Err(IoError::WrongDimensions {
                what: what.to_owned(),
                shape: shape.to_vec(),
                vectors: matches!(self, Dimensions::OneOrTwo),
            }),
        }
    }
}

/// Writes a matrix atomically: an existing file is replaced once the new one is complete. A `.npy`
/// file keeps the order of the matrix; a tensor is row-major, and is called `D` if the location
/// names none.
///
/// # Errors
/// The file cannot be written, or the format has no such element type.
pub fn write(location: &Location, matrix: &HostMatrix) -> Result<(), IoError> {
    match location {
        Location::Npy(path) => npy::write(path, matrix),
        Location::Safetensors { path, .. } => {
            safetensors::write(path, location.tensor_to_write(), matrix)
        }
    }
}

/// Opens a regular file. Returns its length too.
fn open(path: &Path) -> Result<(File, u64), IoError> {
    let cannot_read = |source| IoError::Read { path: path.to_owned(), source };
    let metadata = std::fs::metadata(path).map_err(cannot_read)?;
    if !metadata.is_file() {
        return Err(IoError::NotAFile { path: path.to_owned() });
    }
    Ok((File::open(path).map_err(cannot_read)?, metadata.len()))
}

/// Reads the data of a matrix without gaps from the current position of the file.
fn read_elements(
    file: &mut File,
    path: &Path,
    what: &str,
    layout: MatrixLayout,
    dtype: Dtype,
) -> Result<HostMatrix, IoError> {
    let needed = layout.bytes(dtype).map_or(u64::MAX, |bytes| bytes as u64);
    if let Some(available) = memory::too_little_for(needed) {
        return Err(IoError::HostMemory { what: what.to_owned(), needed, available });
    }
    let mut matrix = HostMatrix::zeros(layout, dtype)
        .map_err(|source| IoError::Matrix { what: what.to_owned(), source })?;
    file.read_exact(matrix.bytes_mut())
        .map_err(|source| IoError::Read { path: path.to_owned(), source })?;
    Ok(matrix)
}

/// Writes the lines of a matrix without the gaps between them.
fn write_elements(matrix: &HostMatrix, target: &mut dyn Write) -> std::io::Result<()> {
    let layout = matrix.layout();
    let size = matrix.dtype().bytes() as usize;
    let line_bytes = layout.line_length() * size;
    if layout.leading_dimension == layout.line_length() {
        return target.write_all(matrix.bytes());
    }
    for line in matrix.bytes().chunks(layout.leading_dimension.saturating_mul(size)) {
        target.write_all(&line[..line_bytes])?;
    }
    Ok(())
}
