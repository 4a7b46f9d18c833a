//! Files there and back, files of numpy and of the safetensors library, and damaged ones.

use std::fs;
use std::path::{Path, PathBuf};

use ::safetensors::tensor::{Dtype as FileDtype, TensorView};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use persistent_gemm::Order;

const NUMPY_TYPES: [Dtype; 6] =
    [Dtype::F16, Dtype::F32, Dtype::F64, Dtype::S8, Dtype::U8, Dtype::S32];
const TENSOR_TYPES: [Dtype; 9] = [
    Dtype::F16,
    Dtype::Bf16,
    Dtype::F32,
    Dtype::F64,
    Dtype::E4m3,
    Dtype::E5m2,
    Dtype::S8,
    Dtype::U8,
    Dtype::S32,
];

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn at(path: &Path) -> Location {
    path.to_str().unwrap().parse().unwrap()
}

fn matrix(layout: MatrixLayout, dtype: Dtype, seed: u64) -> HostMatrix {
    let mut matrix = HostMatrix::zeros(layout, dtype).unwrap();
    matrix.poison();
    matrix.fill_integers(seed, 8);
    matrix
}

/// A version 1 `.npy` file with the given dictionary.
fn npy(dictionary: &str, data: &[u8]) -> Vec<u8> {
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((dictionary.len() as u16).to_le_bytes());
    file.extend(dictionary.as_bytes());
    file.extend(data);
    file
}

fn npy_header(descr: &str, fortran: bool, shape: &str) -> String {
    let fortran = if fortran { "True" } else { "False" };
    format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n")
}

fn put(folder: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn locations_parse_and_print() {
    for (text, tensor) in [
        ("a/b.safetensors", None),
        ("b.safetensors:x.y:z", Some("x.y:z")),
        ("b.safetensors:", Some("")),
    ] {
        let location: Location = text.parse().unwrap();
        let Location::Safetensors { tensor: found, .. } = &location else { panic!("{location:?}") };
        assert_eq!(found.as_deref(), tensor);
        assert_eq!(location.to_string(), text);
    }
    assert_eq!("x.npy".parse::<Location>().unwrap(), Location::Npy("x.npy".into()));
    for text in ["", "x", "x.npz", "x.npy:a", "npy"] {
        assert!(matches!(text.parse::<Location>(), Err(IoError::UnknownFormat { .. })), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn files_there_and_back(
        rows in 0usize..9, columns in 0usize..9, gap in 0usize..4, column_major: bool, kind in 0usize..9, seed: u64,
    ) {
        let folder = folder();
        let order = if column_major { Order::ColumnMajor } else { Order::RowMajor };
        let tight = MatrixLayout::tight(rows, columns, order);
        let layout = tight.with_leading_dimension(tight.leading_dimension + gap);

        let written = matrix(layout, TENSOR_TYPES[kind], seed);
        let location = at(&folder.path().join("x.safetensors"));
        write(&location, &written).unwrap();
        let back = read(&location).unwrap();
        prop_assert_eq!(back.dtype(), written.dtype());
        prop_assert_eq!(back.layout(), MatrixLayout::row_major(rows, columns));
        prop_assert_eq!(back.to_f64_vec(), written.to_f64_vec());

        let written = matrix(layout, NUMPY_TYPES[kind % 6], seed);
        let location = at(&folder.path().join("x.npy"));
        write(&location, &written).unwrap();
        let back = read(&location).unwrap();
        prop_assert_eq!(back.dtype(), written.dtype());
        prop_assert_eq!(back.layout(), tight);
        prop_assert_eq!(back.to_f64_vec(), written.to_f64_vec());
        // Nothing temporary is left.
        prop_assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn damaged_files_are_errors_and_never_panics(
        kind in 0usize..4, cut in 0.0f64..1.0, flips in prop::collection::vec((0.0f64..1.0, 0u32..8), 1..4), seed: u64,
    ) {
        let folder = folder();
        let name = if kind < 2 { "x.npy" } else { "x.safetensors" };
        let path = folder.path().join(name);
        let layout = if kind % 2 == 0 { MatrixLayout::row_major(5, 7) } else { MatrixLayout::column_major(5, 7) };
        write(&at(&path), &matrix(layout, Dtype::F16, seed)).unwrap();
        let whole = fs::read(&path).unwrap();

        let length = (cut * whole.len() as f64) as usize;
        fs::write(&path, &whole[..length]).unwrap();
        let error = read(&at(&path)).unwrap_err().to_string();
        prop_assert!(error.contains(name), "{}", error);

        let mut flipped = whole.clone();
        for (position, bit) in flips {
            let index = (position * whole.len() as f64) as usize;
            flipped[index] ^= 1 << bit;
        }
        fs::write(&path, &flipped).unwrap();
        // A flip in the data gives other values; one in the header another matrix at most.
        if let Err(error) = read(&at(&path)) {
            prop_assert!(error.to_string().contains(name), "{}", error);
        }
    }

    #[test]
    fn headers_of_any_text_never_panic(text in "[-{}()\\[\\]'<|f0-9a-z,:_. \
        ]{0,80}", shape in "[-0-9x_,() ]{0,40}") {
        let folder = folder();
        for dictionary in [text.clone(), npy_header("'<f4'", false, &shape), npy_header(&text, true, "(1, 1)")] {
            let path = put(&folder, "x.npy", &npy(&dictionary, &[0; 4]));
            if let Ok(matrix) = read(&at(&path)) {
                prop_assert_eq!(matrix.bytes().len(), 4);
            }
        }
        let mut file = (text.len() as u64).to_le_bytes().to_vec();
        file.extend(text.as_bytes());
        let path = put(&folder, "x.safetensors", &file);
        prop_assert!(read(&at(&path)).is_err());
    }
}

#[test]
fn every_flip_and_every_cut_of_a_header() {
    let folder = folder();
    for name in ["x.npy", "x.safetensors"] {
        let path = folder.path().join(name);
        write(&at(&path), &matrix(MatrixLayout::row_major(3, 3), Dtype::F32, 1)).unwrap();
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(read(&at(&path)).is_err(), "{name} cut to {length}");
        }
        for bit in 0..(whole.len() - 36) * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &flipped).unwrap();
            if let Ok(matrix) = read(&at(&path)) {
                assert!(matrix.bytes().len() <= 36, "{name} flipped at {bit}");
            }
        }
    }
}

#[test]
fn big_endian_arrays_are_swapped() {
    let folder = folder();
    let data: Vec<u8> = [1.5f32, -2.0, 3.25].iter().flat_map(|value| value.to_be_bytes()).collect();
    let path = put(&folder, "x.npy", &npy(&npy_header("'>f4'", false, "(1, 3)"), &data));
    assert_eq!(read(&at(&path)).unwrap().to_f64_vec(), [1.5, -2.0, 3.25]);
}

#[test]
fn newer_npy_versions_are_read() {
    let folder = folder();
    let text = npy_header("'|i1'", true, "(2, 2)");
    for version in [2, 3] {
        let mut file = vec![0x93, b'N', b'U', b'M', b'P', b'Y', version, 0];
        file.extend((text.len() as u32).to_le_bytes());
        file.extend(text.as_bytes());
        file.extend([1, 2, 3, 255]);
        let path = put(&folder, "x.npy", &file);
        assert_eq!(read(&at(&path)).unwrap().to_f64_vec(), [1.0, 3.0, 2.0, -1.0]);
    }
    let path = put(&folder, "x.npy", b"\x93NUMPY\x09\x00\x00\x00\x00\x00\x00\x00");
    let error = read(&at(&path)).unwrap_err().to_string();
    assert!(error.contains("unsupported version"), "{error}");
}

/// The length of a header has two bytes.
#[test]
fn headers_of_more_than_255_bytes_are_read() {
    let folder = folder();
    for spaces in [0, 200, 255, 256, 1000] {
        let header = npy_header("'|u1'", false, "(2, 3)");
        let header = format!("{}{}\n", header.trim_end(), " ".repeat(spaces));
        let path = put(&folder, "long.npy", &npy(&header, &[1, 2, 3, 4, 5, 6]));
        let read = read(&at(&path)).unwrap();
        assert_eq!(read.to_f64_vec(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "{spaces}");
    }
}

/// A tensor may end where the file does, and not a byte later, whatever the header's length.
#[test]
fn tensors_that_reach_beyond_their_file_are_cut_off() {
    let folder = folder();
    let entry = r#"{"x":{"dtype":"U8","shape":[2,3],"data_offsets":[0,6]}}"#;
    let mut file = (entry.len() as u64).to_le_bytes().to_vec();
    file.extend(entry.as_bytes());
    file.extend([1, 2, 3, 4, 5, 6]);
    let whole = put(&folder, "whole.safetensors", &file);
    assert_eq!(read(&at(&whole)).unwrap().to_f64_vec(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    for missing in 1..=6 {
        let path = put(&folder, "cut.safetensors", &file[..file.len() - missing]);
        let error = read(&at(&path)).unwrap_err();
        let found = 6 - missing as u64;
        let IoError::Truncated { needed: 6, found: told, .. } = error else { panic!("{error}") };
        assert_eq!(told, found);
    }
}

#[test]
fn arrays_that_are_no_matrices_say_what_they_are() {
    let folder = folder();
    for (descr, shape, expected) in [
        ("'<f4'", "(6,)", "1 dimension (shape [6])"),
        ("'<f4'", "()", "0 dimensions"),
        ("'<f4'", "(1, 2, 3)", "3 dimensions (shape [1, 2, 3])"),
        ("'|b1'", "(2, 3)", "booleans"),
        ("'<c8'", "(2, 3)", "complex"),
        ("'|O'", "(2, 3)", "pickled"),
        ("'|V2'", "(2, 3)", "bfloat16"),
        ("'<i8'", "(2, 3)", "int32"),
        ("'<U3'", "(2, 3)", "not numeric"),
        ("'<f16'", "(2, 3)", "extended precision"),
        ("[('x', '<f4')]", "(2, 3)", "structured"),
        ("'<f4'", "(4294967296, 4294967296)", "more elements than any file holds"),
        ("'<f8'", "(2147483648, 1048576)", "cut off"),
        ("'<f8'", "(2147483648, 1073741824)", "more than fits in memory"),
        ("'<f4'", "(2, 2)", "holds more than one array"),
        ("'<f4'", "((((((((((2, 3))))))))))", "nested"),
    ] {
        let path = put(&folder, "x.npy", &npy(&npy_header(descr, false, shape), &[0; 24]));
        let error = read(&at(&path)).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("x.npy"), "{descr} {shape}: {error}");
    }
}

#[test]
fn files_that_cannot_be_opened() {
    let folder = folder();
    let error = read(&at(&folder.path().join("none.npy"))).unwrap_err();
    assert!(matches!(error, IoError::Read { .. }), "{error}");
    fs::create_dir(folder.path().join("folder.npy")).unwrap();
    fs::create_dir(folder.path().join("folder.safetensors")).unwrap();
    for name in ["folder.npy", "folder.safetensors"] {
        let location = at(&folder.path().join(name));
        assert!(matches!(read(&location), Err(IoError::NotAFile { .. })));
        let some = matrix(MatrixLayout::row_major(2, 2), Dtype::F32, 1);
        assert!(matches!(write(&location, &some), Err(IoError::NotAFile { .. })));
    }
    let path = put(&folder, "text.npy", b"just some text, long enough to hold a header");
    let error = read(&at(&path)).unwrap_err().to_string();
    assert!(error.contains("NUMPY"), "{error}");
}

fn model(folder: &TempDir) -> PathBuf {
    let data: Vec<u8> = (0..24).collect();
    let view = |dtype, shape: &[usize], bytes: usize| {
        TensorView::new(dtype, shape.to_vec(), &data[..bytes]).unwrap()
    };
    let path = folder.path().join("model.safetensors");
    let tensors = [
        ("weight", view(FileDtype::BF16, &[3, 4], 24)),
        ("bias", view(FileDtype::F32, &[4], 16)),
        ("index", view(FileDtype::I64, &[1, 2], 16)),
    ];
    fs::write(&path, ::safetensors::serialize(tensors, None).unwrap()).unwrap();
    path
}

#[test]
fn tensors_of_the_safetensors_library_are_read() {
    let folder = folder();
    let path = model(&folder);
    let location = Location::Safetensors { path: path.clone(), tensor: Some("weight".into()) };
    let weight = read(&location).unwrap();
    assert_eq!(weight.layout(), MatrixLayout::row_major(3, 4));
    assert_eq!(weight.dtype(), Dtype::Bf16);
    assert_eq!(weight.bytes(), (0..24).collect::<Vec<u8>>());

    let read = |tensor: Option<&str>| {
        read(&Location::Safetensors { path: path.clone(), tensor: tensor.map(str::to_owned) })
    };
    let error = read(None).unwrap_err().to_string();
    assert!(error.contains("3 tensors") && error.contains("'bias', 'index', 'weight'"), "{error}");
    let error = read(Some("w")).unwrap_err().to_string();
    assert!(error.contains("no tensor 'w'") && error.contains("'weight'"), "{error}");
    assert!(matches!(read(Some("bias")), Err(IoError::WrongDimensions { vectors: false, .. })));
    let vector = |name: &str| read_vector(&format!("{}:{name}", path.display()).parse().unwrap());
    assert_eq!(vector("bias").unwrap().layout(), MatrixLayout::row_major(1, 4));
    assert_eq!(vector("weight").unwrap().layout(), MatrixLayout::row_major(3, 4));
    let error = read(Some("index")).unwrap_err().to_string();
    assert!(error.contains("I64") && error.contains("F8_E4M3"), "{error}");
}

#[test]
fn tensors_are_read_by_the_safetensors_library() {
    let folder = folder();
    let path = folder.path().join("d.safetensors");
    for dtype in TENSOR_TYPES {
        let written = matrix(MatrixLayout::column_major(5, 3), dtype, 4);
        write(&at(&path), &written).unwrap();
        let bytes = fs::read(&path).unwrap();
        let file = ::safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let view = file.tensor("D").unwrap();
        assert_eq!(view.shape(), [5, 3]);
        let layout = MatrixLayout::row_major(5, 3);
        assert_eq!(view.data(), written.relayout(layout).unwrap().bytes());
    }
}

#[test]
fn writing_never_loses_what_is_there() {
    let folder = folder();
    let path = model(&folder);
    let before = fs::read(&path).unwrap();
    let some = matrix(MatrixLayout::row_major(2, 2), Dtype::Bf16, 1);
    let location = Location::Safetensors { path: path.clone(), tensor: Some("weight".into()) };
    let error = write(&location, &some).unwrap_err().to_string();
    assert!(error.contains("'bias', 'index'"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);

    let path = put(&folder, "x.npy", b"precious");
    let error = write(&at(&path), &some).unwrap_err().to_string();
    assert!(
        error.contains("bf16") && error.contains(".safetensors") && error.contains("f32"),
        "{error}"
    );
    assert_eq!(fs::read(&path).unwrap(), b"precious");

    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);

    let nowhere = folder.path().join("no/such/folder/x.npy");
    let single = matrix(MatrixLayout::row_major(2, 2), Dtype::F32, 1);
    assert!(matches!(write(&at(&nowhere), &single), Err(IoError::Write { .. })));
}

#[test]
fn a_safetensors_file_that_cannot_be_read_is_not_replaced() {
    let folder = folder();
    let some = matrix(MatrixLayout::row_major(2, 2), Dtype::Bf16, 1);
    let path = model(&folder);
    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    damaged[9] = b'!';
    for content in [&whole[..20], &damaged, b"text", &[0xff; 64]] {
        fs::write(&path, content).unwrap();
        for error in [check_writable(&at(&path)), write(&at(&path), &some)] {
            let error = error.unwrap_err().to_string();
            assert!(error.contains("may hold other tensors"), "{error}");
            assert!(error.contains("delete the file"), "{error}");
        }
        assert_eq!(fs::read(&path).unwrap(), content);
    }
    // Others are found before the work too.
    fs::write(&path, &whole).unwrap();
    assert!(matches!(check_writable(&at(&path)), Err(IoError::WouldDropTensors { .. })));
    fs::write(&path, b"").unwrap();
    check_writable(&at(&path)).unwrap();
    write(&at(&path), &some).unwrap();
}

#[test]
fn metadata_is_kept_and_is_no_tensor() {
    let folder = folder();
    let path = folder.path().join("d.safetensors");
    let data = [0u8; 4];
    let tensors = [("D", TensorView::new(FileDtype::F16, vec![1, 2], &data).unwrap())];
    let notes = std::collections::HashMap::from([("format".to_owned(), "pt".to_owned())]);
    fs::write(&path, ::safetensors::serialize(tensors, Some(notes.clone())).unwrap()).unwrap();
    write(&at(&path), &matrix(MatrixLayout::row_major(2, 2), Dtype::F32, 1)).unwrap();
    let bytes = fs::read(&path).unwrap();
    let (_, header) = ::safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!(header.metadata().as_ref(), Some(&notes));
    assert_eq!(read(&at(&path)).unwrap().layout(), MatrixLayout::row_major(2, 2));

    let error = "d.safetensors:__metadata__".parse::<Location>().unwrap_err().to_string();
    assert!(error.contains("'__metadata__'") && error.contains("another name"), "{error}");
}

#[cfg(unix)]
#[test]
fn permissions_and_links_stay_as_they_are() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = folder();
    let path = put(&folder, "x.npy", b"old");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let link = folder.path().join("link.npy");
    symlink(&path, &link).unwrap();
    write(&at(&link), &matrix(MatrixLayout::row_major(2, 2), Dtype::F32, 1)).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(read(&at(&path)).is_ok());
    // A new file is as readable as any other.
    let new = folder.path().join("new.npy");
    write(&at(&new), &matrix(MatrixLayout::row_major(2, 2), Dtype::F32, 1)).unwrap();
    let other = put(&folder, "other", b"");
    assert_eq!(
        fs::metadata(&new).unwrap().permissions().mode(),
        fs::metadata(&other).unwrap().permissions().mode()
    );
}
