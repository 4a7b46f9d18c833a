//! `.safetensors` files: a JSON header of names, types, shapes and byte ranges, then the data,
//! row-major and little-endian.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use persistent_gemm::{Dtype, HostMatrix, MatrixLayout, Order};
use safetensors::Dtype as FileDtype;
use safetensors::tensor::TensorInfo;
use serde_json::Value;

use super::{Dimensions, IoError, open, read_elements, replace, write_elements};

/// Bytes of the header's length, at the start of the file.
const LENGTH_BYTES: u64 = 8;
/// The format allows headers of up to 100 MB.
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// The header's entry for everything that is not a tensor.
pub(super) const METADATA: &str = "__metadata__";

/// The tensors of a file by name, not yet interpreted, and where their data begins.
struct Header {
    tensors: BTreeMap<String, Value>,
    /// The entry that is no tensor.
    metadata: Option<Value>,
    data_start: u64,
}

fn read_header(file: &mut File, path: &Path, file_bytes: u64) -> Result<Header, IoError> {
    let cannot_read = |source| IoError::Read { path: path.to_owned(), source };
    let wrong_length = |header_bytes| IoError::SafetensorsHeaderLength {
        path: path.to_owned(),
        header_bytes,
        file_bytes,
    };
    if file_bytes < LENGTH_BYTES {
        return Err(wrong_length(0));
    }
    let mut length = [0; LENGTH_BYTES as usize];
    file.read_exact(&mut length).map_err(cannot_read)?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER_BYTES || length > file_bytes - LENGTH_BYTES {
        return Err(wrong_length(length));
    }
    let mut text = Vec::new();
    file.take(length).read_to_end(&mut text).map_err(cannot_read)?;
    let mut tensors: BTreeMap<String, Value> = serde_json::from_slice(&text)
        .map_err(|source| IoError::SafetensorsHeader { path: path.to_owned(), source })?;
    let metadata = tensors.remove(METADATA);
    Ok(Header { tensors, metadata, data_start: LENGTH_BYTES + length })
}

pub(super) fn read(
    path: &Path,
    requested: Option<&str>,
    dimensions: Dimensions,
) -> Result<HostMatrix, IoError> {
    let (mut file, file_bytes) = open(path)?;
    let Header { mut tensors, data_start, .. } = read_header(&mut file, path, file_bytes)?;
    let names = |tensors: &BTreeMap<String, Value>| tensors.keys().cloned().collect();
    let (name, entry) = match requested {
        Some(requested) => match tensors.remove_entry(requested) {
            Some(tensor) => tensor,
            None => {
                return Err(IoError::NoSuchTensor {
                    path: path.to_owned(),
                    requested: requested.to_owned(),
                    available: names(&tensors),
                });
            }
        },
        None => match (tensors.len(), tensors.pop_first()) {
            (1, Some(tensor)) => tensor,
            (_, first) => {
                tensors.extend(first);
                let available = names(&tensors);
                return Err(IoError::TensorNameNeeded { path: path.to_owned(), available });
            }
        },
    };

    let what = format!("{}:{name}", path.display());
    let damaged = |source| IoError::SafetensorsHeader { path: path.to_owned(), source };
    let info: TensorInfo = serde_json::from_value(entry).map_err(damaged)?;
    let dtype = element_type(info.dtype, &what)?;
    let shape: Vec<u64> = info.shape.iter().map(|extent| *extent as u64).collect();
    let [rows, columns] = dimensions.extents(&what, &shape)?;
    let needed = rows
        .checked_mul(columns)
        .and_then(|elements| elements.checked_mul(u64::from(dtype.bytes())));
    let (Some(needed), Ok(rows), Ok(columns)) = (needed, rows.try_into(), columns.try_into())
    else {
        return Err(IoError::TooLarge { what, shape });
    };
    let (start, end) = (info.data_offsets.0 as u64, info.data_offsets.1 as u64);
    if end.checked_sub(start) != Some(needed) {
        return Err(IoError::TensorBytes {
            path: path.to_owned(),
            tensor: name,
            start,
            end,
            needed,
        });
    }
    let found = file_bytes - data_start;
    if end > found {
        return Err(IoError::Truncated { path: path.to_owned(), needed: end, found });
    }
    file.seek(SeekFrom::Start(data_start + start))
        .map_err(|source| IoError::Read { path: path.to_owned(), source })?;
    read_elements(&mut file, path, &what, MatrixLayout::row_major(rows, columns), dtype)
}

fn element_type(found: FileDtype, what: &str) -> Result<Dtype, IoError> {
    Ok(match found {
        FileDtype::F16 => Dtype::F16,
        FileDtype::BF16 => Dtype::Bf16,
        FileDtype::F32 => Dtype::F32,
        FileDtype::F64 => Dtype::F64,
        FileDtype::F8_E4M3 => Dtype::E4m3,
        FileDtype::F8_E5M2 => Dtype::E5m2,
        FileDtype::I8 => Dtype::S8,
        FileDtype::U8 => Dtype::U8,
        FileDtype::I32 => Dtype::S32,
        other => {
            return Err(IoError::Unsupported {
                what: what.to_owned(),
                found: format!("{other:?}"),
                advice: "convert it to F16, BF16, F32, F64, F8_E4M3, F8_E5M2, I8, U8 or I32",
            });
        }
    })
}

fn file_type(dtype: Dtype) -> FileDtype {
    match dtype {
        Dtype::F16 => FileDtype::F16,
        Dtype::Bf16 => FileDtype::BF16,
        Dtype::F32 | Dtype::Tf32 => FileDtype::F32,
        Dtype::F64 => FileDtype::F64,
        Dtype::E4m3 => FileDtype::F8_E4M3,
        Dtype::E5m2 => FileDtype::F8_E5M2,
        Dtype::S8 => FileDtype::I8,
        Dtype::U8 => FileDtype::U8,
        Dtype::S32 => FileDtype::I32,
    }
}

pub(super) fn write(path: &Path, name: &str, matrix: &HostMatrix) -> Result<(), IoError> {
    let metadata = check_replaceable(path, name)?;
    let row_major;
    let matrix = if matrix.layout().order == Order::RowMajor {
        matrix
    } else {
        let layout = MatrixLayout::row_major(matrix.rows(), matrix.columns());
        row_major = matrix
            .relayout(layout)
            .map_err(|source| IoError::Matrix { what: path.display().to_string(), source })?;
        &row_major
    };
    let (rows, columns) = (matrix.rows(), matrix.columns());
    let info = TensorInfo {
        dtype: file_type(matrix.dtype()),
        shape: vec![rows, columns],
        data_offsets: (0, rows * columns * matrix.dtype().bytes() as usize),
    };
    replace(path, |target| {
        let mut entries = BTreeMap::from([(name, serde_json::to_value(&info)?)]);
        entries.extend(metadata.map(|metadata| (METADATA, metadata)));
        let mut header = serde_json::to_vec(&entries)?;
        // Padded with spaces, so that the data is aligned.
        header.resize(header.len().next_multiple_of(LENGTH_BYTES as usize), b' ');
        target.write_all(&(header.len() as u64).to_le_bytes())?;
        target.write_all(&header)?;
        write_elements(matrix, target)
    })
}

/// Checks that no tensors are lost if a file with only this tensor replaces the one that is there.
/// Returns the metadata of that file, which the new one keeps.
pub(super) fn check_replaceable(path: &Path, name: &str) -> Result<Option<Value>, IoError> {
    let unreadable =
        |source| IoError::UnreadableTarget { path: path.to_owned(), source: Box::new(source) };
    let (mut file, file_bytes) = match open(path) {
        Ok(open) => open,
        Err(IoError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error @ IoError::NotAFile { .. }) => return Err(error),
        Err(error) => return Err(unreadable(error)),
    };
    if file_bytes == 0 {
        return Ok(None);
    }
    let mut header = read_header(&mut file, path, file_bytes).map_err(unreadable)?;
    header.tensors.remove(name);
    if header.tensors.is_empty() {
        return Ok(header.metadata);
    }
    let others = header.tensors.into_keys().collect();
    Err(IoError::WouldDropTensors { path: path.to_owned(), others })
}
