//! Why a matrix cannot be read or written.

use std::path::PathBuf;

use persistent_gemm::{Dtype, MatrixError};

use crate::memory::bytes;

/// Why a matrix cannot be read or written. Each message names the file and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum IoError {
    /// The format cannot be derived from the file name.
    #[error(
        "'{text}' is no matrix file: use FILE.npy, FILE.safetensors or FILE.safetensors:TENSOR"
    )]
    UnknownFormat {
        /// The given text.
        text: String,
    },

    /// The operating system refuses to read.
    #[error("cannot read {}: {source}. Check that the file exists and that this user may read \
        it", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },

    /// The operating system refuses to write.
    #[error(
        "cannot write {}: {source}. Nothing was changed there. Check that the folder exists, that \
         this user may write to it, and that the disk is not full",
        path.display()
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },

    /// Not a regular file.
    #[error("{} is not a regular file: give the path of a file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },

    /// The .npy header cannot be parsed.
    #[error(
        "{} is not a .npy file or is damaged: {source}. Save it again with numpy.save",
        path.display()
    )]
    NpyHeader {
        /// The file.
        path: PathBuf,
        /// The error of the parser.
        source: std::io::Error,
    },

    /// The .npy header is not one that numpy writes.
    #[error(
        "{} is not a .npy file or is damaged: its header {what}. Save it again with numpy.save",
        path.display()
    )]
    NpyHeaderMalformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },

    /// The .safetensors header is not where or as long as it should be.
    #[error(
        "{} is not a .safetensors file or is damaged: it has {file_bytes} bytes and claims a \
         header of {header_bytes}. Save or download it again",
        path.display()
    )]
    SafetensorsHeaderLength {
        /// The file.
        path: PathBuf,
        /// The header length stated in the first eight bytes.
        header_bytes: u64,
        /// Bytes in the file.
        file_bytes: u64,
    },

    /// The .safetensors header cannot be parsed.
    #[error(
        "{} is not a .safetensors file or is damaged: {source}. Save or download it again",
        path.display()
    )]
    SafetensorsHeader {
        /// The file.
        path: PathBuf,
        /// What the parser says.
        source: serde_json::Error,
    },

    /// A tensor's bytes are not those of its shape and type.
    #[error(
        "{} is damaged: tensor '{tensor}' is stored as bytes {start}..{end}, and its shape and \
         type take {needed}. Save or download it again",
        path.display()
    )]
    TensorBytes {
        /// The file.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// Its first byte after the header.
        start: u64,
        /// One past its last byte.
        end: u64,
        /// Bytes that its shape and type need.
        needed: u64,
    },

    /// The file ends early.
    #[error(
        "{} is cut off: it has {found} bytes of data, and its header announces {needed}. Save, \
         copy or download it again",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Bytes announced.
        needed: u64,
        /// Bytes there.
        found: u64,
    },

    /// The file is longer than its data.
    #[error(
        "{} is damaged, or holds more than one array: it has {found} bytes of data, and its header \
         announces {needed}. Save one array per file",
        path.display()
    )]
    TrailingBytes {
        /// The file.
        path: PathBuf,
        /// Bytes announced.
        needed: u64,
        /// Bytes there.
        found: u64,
    },

    /// Not a matrix, and not a vector where one is allowed.
    #[error(
        "{what} has {} dimension{} (shape {shape:?}): {} has {}. Reshape it, for example to (1, n)",
        shape.len(),
        if shape.len() == 1 { "" } else { "s" },
        if *vectors { "a vector" } else { "a matrix" },
        if *vectors { "one or two" } else { "two" }
    )]
    WrongDimensions {
        /// The file, and the tensor in it.
        what: String,
        /// The shape found.
        shape: Vec<u64>,
        /// Whether a vector was allowed.
        vectors: bool,
    },

    /// The extents multiply to more than fits an address space.
    #[error(
        "{what} claims the shape {shape:?}, which is more than fits in memory: the file is \
         damaged. Save it again"
    )]
    TooLarge {
        /// The file, and the tensor in it.
        what: String,
        /// The shape found.
        shape: Vec<u64>,
    },

    /// The matrix would be killed for want of memory.
    #[error(
        "{what} needs {} of host memory, and {} are available: end other programs, or use a \
         machine with more",
        bytes(*needed),
        bytes(*available)
    )]
    HostMemory {
        /// The file, and the tensor in it.
        what: String,
        /// Bytes of the matrix.
        needed: u64,
        /// Bytes that the operating system has.
        available: u64,
    },

    /// An element type that no matrix has.
    #[error("{what} holds {found}, which is not supported: {advice}")]
    Unsupported {
        /// The file, and the tensor in it.
        what: String,
        /// The type found, as the file names it.
        found: String,
        /// The advice.
        advice: &'static str,
    },

    /// No tensor has that name.
    #[error(
        "{} has no tensor '{requested}'. It has: {}",
        path.display(),
        listed(available)
    )]
    NoSuchTensor {
        /// The file.
        path: PathBuf,
        /// The requested name.
        requested: String,
        /// The names that it has.
        available: Vec<String>,
    },

    /// The file has several tensors, or none.
    #[error(
        "{} holds {} tensors: say which one, as FILE.safetensors:TENSOR. It has: {}",
        path.display(),
        available.len(),
        listed(available)
    )]
    TensorNameNeeded {
        /// The file.
        path: PathBuf,
        /// The names that it has.
        available: Vec<String>,
    },

    /// Writing would drop other tensors.
    #[error(
        "{} already holds other tensors ({}), which writing would drop. Choose another file name, \
         or delete the file",
        path.display(),
        listed(others)
    )]
    WouldDropTensors {
        /// The file.
        path: PathBuf,
        /// The tensors that would be lost.
        others: Vec<String>,
    },

    /// The name is not that of a tensor.
    #[error(
        "a tensor cannot be called '{tensor}': the safetensors format uses this name for what is \
         no tensor. Choose another name"
    )]
    ReservedName {
        /// The name.
        tensor: &'static str,
    },

    /// The file to replace may have tensors, and cannot be read.
    #[error(
        "{} is there and may hold other tensors, which writing would drop: {source}. Choose \
         another file name, or delete the file",
        path.display()
    )]
    UnreadableTarget {
        /// The file.
        path: PathBuf,
        /// Why it cannot be read.
        source: Box<IoError>,
    },

    /// numpy has no such element type.
    #[error(
        "numpy has no {dtype}, so {} cannot hold it: write a .safetensors file, or choose an \
         output dtype of f32",
        path.display()
    )]
    NoNumpyType {
        /// The file.
        path: PathBuf,
        /// The matrix's element type.
        dtype: Dtype,
    },

    /// A host matrix could not be made.
    #[error("{what}: {source}")]
    Matrix {
        /// The file or matrix.
        what: String,
        /// The error.
        source: MatrixError,
    },
}

/// Names in quotes, the first few of them.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 20;
    if names.is_empty() {
        return "nothing".to_owned();
    }
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("'{name}'")).collect();
    let rest = names.len().saturating_sub(SHOWN);
    if rest == 0 { shown.join(", ") } else { format!("{} and {rest} more", shown.join(", ")) }
}
