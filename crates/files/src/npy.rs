//! `.npy` files (NEP 1): one array, its header a Python dictionary.

use std::io::{Cursor, Read};
use std::path::Path;

use npyz::{DType, Endianness, NpyHeader, TypeChar, WriterBuilder};
use persistent_gemm::{Dtype, HostMatrix, MatrixLayout, Order};

use super::{Dimensions, IoError, open, read_elements, replace, write_elements};

/// numpy itself reads headers of up to 10000 bytes.
const MAX_HEADER_BYTES: usize = 10_000;

pub(super) fn read(path: &Path, dimensions: Dimensions) -> Result<HostMatrix, IoError> {
    let (mut file, file_bytes) = open(path)?;
    let header_bytes = read_header(&mut file, path)?;
    let header = NpyHeader::from_reader(Cursor::new(&header_bytes))
        .map_err(|source| IoError::NpyHeader { path: path.to_owned(), source })?;
    let what = path.display().to_string();
    let (dtype, endianness) = element_type(&header.dtype(), &what)?;
    let shape = header.shape();
    let [rows, columns] = dimensions.extents(&what, shape)?;

    let too_large = || IoError::TooLarge { what: what.clone(), shape: shape.to_vec() };
    let needed = rows
        .checked_mul(columns)
        .and_then(|elements| elements.checked_mul(u64::from(dtype.bytes())))
        .ok_or_else(too_large)?;
    let found = file_bytes.saturating_sub(header_bytes.len() as u64);
    if found < needed {
        return Err(IoError::Truncated { path: path.to_owned(), needed, found });
    }
    if found > needed {
        return Err(IoError::TrailingBytes { path: path.to_owned(), needed, found });
    }
    let extent = |extent: u64| usize::try_from(extent).map_err(|_| too_large());
    let order = match header.order() {
        npyz::Order::C => Order::RowMajor,
        npyz::Order::Fortran => Order::ColumnMajor,
    };
    let layout = MatrixLayout::tight(extent(rows)?, extent(columns)?, order);
    let mut matrix = read_elements(&mut file, path, &what, layout, dtype)?;
    if endianness == Endianness::Big {
        let size = dtype.bytes() as usize;
        matrix.bytes_mut().chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    Ok(matrix)
}

/// Reads everything before the data, and rejects headers that would crash the parser. The parser
/// recurses into brackets and multiplies extents without checks.
fn read_header(file: &mut impl Read, path: &Path) -> Result<Vec<u8>, IoError> {
    let malformed = |what| IoError::NpyHeaderMalformed { path: path.to_owned(), what };
    let mut read = |length: usize| {
        let mut bytes = vec![0; length];
        file.read_exact(&mut bytes).map(|()| bytes).map_err(|source| match source.kind() {
            std::io::ErrorKind::UnexpectedEof => malformed("is cut off"),
            _ => IoError::Read { path: path.to_owned(), source },
        })
    };
    let mut header = read(8)?;
    // Versions 2 and 3 have a longer length field. A wrong magic or version is the parser's to
    // report.
    let length = if header.get(6) == Some(&1) {
        let field = read(2)?;
        header.extend_from_slice(&field);
        field.iter().rev().fold(0usize, |length, byte| length << 8 | usize::from(*byte))
    } else {
        let field = read(4)?;
        header.extend_from_slice(&field);
        field.iter().rev().fold(0usize, |length, byte| length << 8 | usize::from(*byte))
    };
    if !header.starts_with(b"\x93NUMPY") {
        return Err(malformed("does not begin with \\x93NUMPY"));
    }
    if length > MAX_HEADER_BYTES {
        return Err(malformed("is longer than numpy allows"));
    }
    let text = read(length)?;
    check_text(&text).map_err(malformed)?;
    header.extend_from_slice(&text);
    Ok(header)
}

fn check_text(text: &[u8]) -> Result<(), &'static str> {
    const DEEPEST: usize = 8;
    let mut depth = 0usize;
    let mut product = 1u64;
    // Digits inside names count too. No header that numpy writes for a matrix is near the limit.
    for word in text.split_inclusive(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_') {
        let (letters, end) = match word.split_last() {
            Some((last, letters)) if !last.is_ascii_alphanumeric() && *last != b'_' => {
                (letters, Some(*last))
            }
            _ => (word, None),
        };
        match end {
            Some(b'(' | b'[' | b'{') => depth += 1,
            Some(b')' | b']' | b'}') => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEEPEST {
            return Err("has too many nested brackets");
        }
        if letters.first().is_some_and(u8::is_ascii_digit) {
            let number = std::str::from_utf8(letters).ok().and_then(|digits| digits.parse().ok());
            let number: u64 = number.ok_or("has a number that is no extent")?;
            product = product
                .checked_mul(number.max(1))
                .ok_or("claims more elements than any file holds")?;
        }
    }
    Ok(())
}

fn element_type(found: &DType, what: &str) -> Result<(Dtype, Endianness), IoError> {
    let unsupported = |advice| {
        let found = found.descr();
        IoError::Unsupported { what: what.to_owned(), found, advice }
    };
    let DType::Plain(plain) = found else {
        return Err(unsupported("it is a structured array. Save one of its fields"));
    };
    let dtype = match (plain.type_char(), plain.size_field()) {
        (TypeChar::Float, 2) => Dtype::F16,
        (TypeChar::Float, 4) => Dtype::F32,
        (TypeChar::Float, 8) => Dtype::F64,
        (TypeChar::Int, 1) => Dtype::S8,
        (TypeChar::Uint, 1) => Dtype::U8,
        (TypeChar::Int, 4) => Dtype::S32,
        (TypeChar::Float, _) => {
            return Err(unsupported("extended precision. Convert it with .astype(numpy.float64)"));
        }
        (TypeChar::Int | TypeChar::Uint, _) => {
            return Err(unsupported(
                "of the integers only int8, uint8 and int32 are. Convert it with .astype",
            ));
        }
        (TypeChar::Bool, _) => {
            return Err(unsupported("booleans. Convert it with .astype(numpy.float16)"));
        }
        (TypeChar::Complex, _) => {
            return Err(unsupported("complex numbers. Save .real and .imag separately"));
        }
        (TypeChar::Object, _) => {
            return Err(unsupported(
                "pickled Python objects. Convert it with .astype(numpy.float32) before saving",
            ));
        }
        (TypeChar::RawData, _) => {
            return Err(unsupported(
                "raw bytes, as which numpy saves types that it does not know (bfloat16, float8). \
                 Save a .safetensors file",
            ));
        }
        _ => return Err(unsupported("it is not numeric. Convert it with .astype")),
    };
    Ok((dtype, plain.endianness()))
}

pub(super) fn write(path: &Path, matrix: &HostMatrix) -> Result<(), IoError> {
    let name = match matrix.dtype() {
        Dtype::F16 => "<f2",
        Dtype::F32 | Dtype::Tf32 => "<f4",
        Dtype::F64 => "<f8",
        Dtype::S8 => "|i1",
        Dtype::U8 => "|u1",
        Dtype::S32 => "<i4",
        dtype @ (Dtype::Bf16 | Dtype::E4m3 | Dtype::E5m2) => {
            return Err(IoError::NoNumpyType { path: path.to_owned(), dtype });
        }
    };
    let order = match matrix.layout().order {
        Order::RowMajor => npyz::Order::C,
        Order::ColumnMajor => npyz::Order::Fortran,
    };
    let shape = [matrix.rows() as u64, matrix.columns() as u64];
    replace(path, |target| {
        let type_str = name.parse().map_err(std::io::Error::other)?;
        npyz::WriteOptions::new_header_only()
            .dtype(DType::new_scalar(type_str))
            .shape(&shape)
            .order(order)
            .writer(&mut *target)
            .write_header_only()?;
        write_elements(matrix, target)
    })
}
