//! Writes packs.

use std::io;

use crate::base::{bases, compressed, in_parallel};
use crate::pack::{FORMAT, HASH_BYTES, HEADER_BYTES, MAGIC, NO_BASE, hash_of};

/// How hard the compression tries: as hard as it can.
const LEVEL: i32 = 22;

/// The bytes of a pack with these kernels and their cubins, by the generator and the assembler that
/// made them.
///
/// # Errors
/// A text or the whole is too large for the format, a kernel is there twice, or there is no memory.
pub fn write(
    mut kernels: Vec<(String, Vec<u8>)>,
    generator: &str,
    assembler: &str,
) -> io::Result<Vec<u8>> {
    kernels.sort();
    if let Some([(name, _), _]) = kernels.windows(2).find(|two| two[0].0 == two[1].0) {
        return Err(io::Error::other(format!("the kernel {name} is there twice")));
    }
    let cubins: Vec<&[u8]> = kernels.iter().map(|(_, cubin)| cubin.as_slice()).collect();
    let bases = bases(&cubins)?;
    let mut index = Vec::new();
    text(&mut index, generator)?;
    text(&mut index, assembler)?;
    number(&mut index, kernels.len())?;
    let compressed = in_parallel(cubins.len(), |number| {
        let dictionary = bases[number].map_or(&[][..], |base| cubins[base]);
        compressed(cubins[number], dictionary, LEVEL)
    })?;
    let mut frames = Vec::new();
    for (((name, cubin), base), frame) in kernels.iter().zip(&bases).zip(compressed) {
        text(&mut index, name)?;
        for value in [frames.len(), frame.len(), cubin.len()] {
            number(&mut index, value)?;
        }
        number(&mut index, base.unwrap_or(NO_BASE as usize))?;
        let hash: [u8; HASH_BYTES] = hash_of(cubin);
        index.extend(hash);
        frames.extend(frame);
    }
    let mut bytes = Vec::with_capacity(HEADER_BYTES + index.len() + frames.len());
    bytes.extend(MAGIC);
    bytes.extend(FORMAT.to_le_bytes());
    number(&mut bytes, index.len())?;
    bytes.extend(blake3::hash(&index).as_bytes());
    bytes.extend(index);
    bytes.extend(frames);
    Ok(bytes)
}

fn number(bytes: &mut Vec<u8>, number: usize) -> io::Result<()> {
    let number = u32::try_from(number).map_err(io::Error::other)?;
    bytes.extend(number.to_le_bytes());
    Ok(())
}

fn text(bytes: &mut Vec<u8>, text: &str) -> io::Result<()> {
    let length = u16::try_from(text.len()).map_err(io::Error::other)?;
    bytes.extend(length.to_le_bytes());
    bytes.extend(text.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pack, PackError};

    /// Cubins that look random, in families that differ in few bytes.
    fn kernels() -> Vec<(String, Vec<u8>)> {
        let mut number = 7u64;
        let mut byte = move || {
            // Knuth's MMIX generator; its high bits are good enough.
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (number >> 40) as u8
        };
        let families: Vec<Vec<u8>> = (0..3).map(|_| (0..4000).map(|_| byte()).collect()).collect();
        let kernel = |number: usize| {
            let mut cubin = families[number % 3].clone();
            cubin[10 * number] ^= 0xff;
            (format!("kernel-{number}"), cubin)
        };
        (0..30).map(kernel).collect()
    }

    fn pack() -> Vec<u8> {
        write(kernels(), "generator", "assembler 1.2").unwrap()
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = pack();
        // Each family is there once, and little else.
        assert!((12_000..16_000).contains(&bytes.len()), "{}", bytes.len());
        let pack = Pack::read(bytes).unwrap();
        assert_eq!((pack.generator(), pack.assembler()), ("generator", "assembler 1.2"));
        assert_eq!(pack.len(), 30);
        assert!(pack.names().is_sorted());
        for (name, cubin) in kernels() {
            assert_eq!(pack.cubin(&name), Some(Ok(cubin)), "{name}");
        }
        assert!(!pack.contains("kernel-30") && pack.cubin("kernel-30").is_none());
    }

    #[test]
    fn no_bytes_are_no_kernels() {
        assert!(Pack::read(&[][..]).unwrap().is_empty());
        let empty = write(vec![], "", "").unwrap();
        assert!(Pack::read(empty).unwrap().is_empty());
    }

    #[test]
    fn a_kernel_that_is_there_twice_is_refused() {
        let twice = vec![("one".to_owned(), vec![1]), ("one".to_owned(), vec![2])];
        assert!(write(twice, "", "").is_err());
    }

    #[test]
    fn foreign_and_truncated_packs_are_refused() {
        let bytes = pack();
        assert_eq!(Pack::read(b"\x7fELF and more".to_vec()).unwrap_err(), PackError::Magic);
        let mut newer = bytes.clone();
        newer[8] = 9;
        assert_eq!(Pack::read(newer).unwrap_err(), PackError::Format { found: 9 });
        for length in (1..bytes.len()).step_by(97) {
            Pack::read(bytes[..length].to_vec()).unwrap_err();
        }
    }

    #[test]
    fn a_damaged_byte_is_found_and_the_other_kernels_are_right() {
        let bytes = pack();
        let whole = Pack::read(bytes.clone()).unwrap();
        let places = (0..bytes.len()).step_by(61);
        let mut found_out = 0;
        for place in places.clone() {
            let mut damaged = bytes.clone();
            damaged[place] ^= 0x10;
            let Ok(pack) = Pack::read(damaged) else {
                found_out += 1;
                continue;
            };
            let mut wrong = false;
            for name in whole.names() {
                match pack.cubin(name) {
                    Some(Ok(cubin)) => assert_eq!(Some(Ok(cubin)), whole.cubin(name), "{name}"),
                    found => {
                        assert_eq!(found, Some(Err(PackError::Kernel { name: name.to_owned() })));
                        wrong = true;
                    }
                }
            }
            found_out += usize::from(wrong);
        }
        // A frame has few bits that do not matter.
        assert!(found_out * 20 > places.len() * 19, "{found_out} of {}", places.len());
    }
}
