//! Writes packs.

use std::io::{self, Write};

use lzma_rust2::{Lzma2Options, Lzma2Writer, LzmaOptions};
use rayon::prelude::*;
use zstd::zstd_safe::{self, CCtx, CParameter};

use crate::pack::{ALIGNMENT, Compression, FORMAT, HEADER_BYTES, MAGIC, hash_of};

/// How hard Zstandard tries: as hard as it can.
const LEVEL: i32 = 22;

/// A power of 2 of bytes, in which Zstandard finds what a group has in common.
const WINDOW: u32 = 24;

/// Kernels that are compressed together.
#[derive(Clone, Copy, Debug)]
pub struct Group<'k> {
    /// How.
    pub compression: Compression,
    /// A kernel of a former group of Zstandard that has no base itself. This group, of Zstandard
    /// too, is compressed with that kernel at hand, and takes little space if it is similar. For
    /// the first use of its kernels, that one is decompressed too.
    pub base: Option<Base>,
    /// The names of kernels, with their cubins. They should be similar. For the first use of a
    /// kernel, those before it are decompressed too.
    pub kernels: &'k [(String, Vec<u8>)],
}

/// A kernel of a group: the number of the group, and its own in there.
#[derive(Clone, Copy, Debug)]
pub struct Base {
    /// The number of the group.
    pub group: usize,
    /// The number of the kernel among those of the group.
    pub kernel: usize,
}

impl<'k> Group<'k> {
    /// A group of Zstandard without a base.
    pub fn new(kernels: &'k [(String, Vec<u8>)]) -> Group<'k> {
        Group { compression: Compression::Zstandard, base: None, kernels }
    }
}

/// The bytes of a pack with these groups of kernels, by the generator and the assembler that made
/// them, and with notes of any kind.
///
/// # Errors
/// A text or the whole is too large for the format, a kernel is there twice, a base is no kernel of
/// such a group, or there is no memory.
pub fn write(
    groups: &[Group<'_>],
    generator: &str,
    assembler: &str,
    notes: &[u8],
) -> io::Result<Vec<u8>> {
    // The place of each base in its group, and its cubin.
    let mut bases: Vec<Option<(usize, &[u8])>> = vec![];
    for (number, group) in groups.iter().enumerate() {
        let is_zstandard = |group: &Group| group.compression == Compression::Zstandard;
        let found = group.base.map(|Base { group: of, kernel }| {
            let former =
                groups[..number].get(of).filter(|of| is_zstandard(of) && of.base.is_none());
            let kernels = former.filter(|_| is_zstandard(group))?.kernels;
            let place = kernels.get(..kernel)?.iter().map(|(_, cubin)| aligned(cubin)).sum();
            Some((place, &*kernels.get(kernel)?.1))
        });
        if found == Some(None) {
            return Err(io::Error::other(format!("group {number} cannot have its base")));
        }
        bases.push(found.flatten());
    }
    let of_group = |(group, base): (&Group, &Option<(usize, &[u8])>)| {
        compressed(group, base.map_or(&[], |(_, cubin)| cubin))
    };
    let all = groups.par_iter().zip(&bases);
    let compressed: Vec<Vec<u8>> = all.map(of_group).collect::<io::Result<_>>()?;
    let mut index = Vec::new();
    text(&mut index, generator)?;
    text(&mut index, assembler)?;
    number(&mut index, notes.len())?;
    index.extend(notes);
    number(&mut index, groups.len())?;
    for ((group, base), compressed) in groups.iter().zip(&bases).zip(&compressed) {
        index.push(group.compression as u8);
        number(&mut index, group.base.map_or(0, |base| base.group + 1))?;
        let (place, length) = base.map_or((0, 0), |(place, cubin)| (place, cubin.len()));
        number(&mut index, place)?;
        number(&mut index, length)?;
        number(&mut index, compressed.len())?;
        number(&mut index, group.kernels.iter().map(|(_, cubin)| aligned(cubin)).sum())?;
    }
    let mut places: Vec<(&str, usize, usize, &[u8])> = vec![];
    for (number, group) in groups.iter().enumerate() {
        let mut place = 0;
        for (name, cubin) in group.kernels {
            places.push((name, number, place, cubin));
            place += aligned(cubin);
        }
    }
    places.sort_by_key(|(name, ..)| *name);
    if let Some([(name, ..), _]) = places.windows(2).find(|two| two[0].0 == two[1].0) {
        return Err(io::Error::other(format!("the kernel {name} is there twice")));
    }
    number(&mut index, places.len())?;
    for (name, group, place, cubin) in places {
        text(&mut index, name)?;
        for value in [group, place, cubin.len()] {
            number(&mut index, value)?;
        }
        index.extend(hash_of(cubin));
    }
    let mut bytes = Vec::with_capacity(HEADER_BYTES + index.len());
    bytes.extend(MAGIC);
    bytes.extend(FORMAT.to_le_bytes());
    number(&mut bytes, index.len())?;
    bytes.extend(blake3::hash(&index).as_bytes());
    bytes.extend(index);
    compressed.iter().for_each(|group| bytes.extend(group));
    Ok(bytes)
}

/// Adds a cubin to those of a group.
fn join(cubins: &mut Vec<u8>, cubin: &[u8]) {
    let end = cubins.len() + aligned(cubin);
    cubins.extend(cubin);
    cubins.resize(end, 0);
}

/// The cubins of a group, one after the other.
fn joined(group: &Group<'_>) -> Vec<u8> {
    let mut cubins = Vec::new();
    group.kernels.iter().for_each(|(_, cubin)| join(&mut cubins, cubin));
    cubins
}

/// The compressed bytes of a group, with its base.
fn compressed(group: &Group<'_>, base: &[u8]) -> io::Result<Vec<u8>> {
    match group.compression {
        Compression::Zstandard => {
            let mut former = base.to_vec();
            let mut frames = Vec::new();
            for (_, cubin) in group.kernels {
                let mut next = Vec::new();
                join(&mut next, cubin);
                frames.extend(frame(&former, &next)?);
                former.extend(next);
            }
            Ok(frames)
        }
        Compression::Lzma2 => {
            let mut options = LzmaOptions::with_preset(9);
            options.nice_len = LzmaOptions::NICE_LEN_MAX;
            // The bits of a place in an instruction.
            let place = ALIGNMENT.ilog2();
            (options.lc, options.lp, options.pb) = (0, place, place);
            let options = Lzma2Options { lzma_options: options, ..Lzma2Options::default() };
            let mut writer = Lzma2Writer::new(Vec::new(), options);
            writer.write_all(&joined(group))?;
            writer.finish()
        }
    }
}

/// A frame of Zstandard with these bytes, whose prefix are others.
fn frame(prefix: &[u8], bytes: &[u8]) -> io::Result<Vec<u8>> {
    let failed = |code| io::Error::other(zstd_safe::get_error_name(code));
    let mut context = CCtx::create();
    for parameter in [CParameter::CompressionLevel(LEVEL), CParameter::WindowLog(WINDOW)] {
        context.set_parameter(parameter).map_err(failed)?;
    }
    context.ref_prefix(prefix).map_err(failed)?;
    let mut frame = Vec::with_capacity(zstd_safe::compress_bound(bytes.len()));
    context.compress2(&mut frame, bytes).map_err(failed)?;
    Ok(frame)
}

/// The bytes that a cubin takes in its group.
fn aligned(cubin: &[u8]) -> usize {
    cubin.len().next_multiple_of(ALIGNMENT)
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
        (0..50).map(kernel).collect()
    }

    fn pack() -> Vec<u8> {
        let kernels = kernels();
        let groups = [
            Group::new(&kernels[..16]),
            Group { compression: Compression::Lzma2, ..Group::new(&kernels[16..32]) },
            Group { base: Some(Base { group: 0, kernel: 2 }), ..Group::new(&kernels[32..]) },
        ];
        write(&groups, "generator", "assembler 1.2", b"notes").unwrap()
    }

    /// Words in a random order, of which the usual level finds fewer again.
    #[test]
    fn frames_are_compressed_at_their_level() {
        let mut number = 3u32;
        let mut below = |end: u32| {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (number >> 16) % end
        };
        let words: Vec<Vec<u8>> =
            (0..300).map(|_| (0..3 + below(9)).map(|_| below(26) as u8).collect()).collect();
        let bytes: Vec<u8> = (0..15_000).flat_map(|_| words[below(300) as usize].clone()).collect();
        let with = |level: i32| zstd::bulk::compress(&bytes, level).unwrap().len();
        let written = frame(&[], &bytes).unwrap().len();
        assert!(written < with(zstd::DEFAULT_COMPRESSION_LEVEL), "{written}");
        assert!(written <= with(LEVEL) + with(LEVEL) / 1000, "{written}");
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = pack();
        // Each of the three families is there once in each of the two groups without a base, two of
        // them in the group whose base is of the third, and little else.
        assert!((32_000..38_000).contains(&bytes.len()), "{}", bytes.len());
        let pack = Pack::read(bytes).unwrap();
        assert_eq!((pack.generator(), pack.assembler()), ("generator", "assembler 1.2"));
        assert_eq!((pack.len(), pack.notes()), (50, &b"notes"[..]));
        assert!(pack.names().is_sorted());
        // Those of one group and of the other, from both ends.
        let (forwards, backwards) = (kernels(), kernels().into_iter().rev());
        for (name, cubin) in forwards.into_iter().zip(backwards).flat_map(|(one, two)| [one, two]) {
            assert_eq!(pack.cubin(&name), Some(Ok(cubin)), "{name}");
        }
        assert!(!pack.contains("kernel-50") && pack.cubin("kernel-50").is_none());
    }

    #[test]
    fn kernels_that_are_decompressed_ahead_are_as_they_were() {
        let pack = Pack::read(pack()).unwrap();
        // Some of each group.
        pack.decompress_ahead(|name| name.ends_with('7'));
        for (name, cubin) in kernels() {
            assert_eq!(pack.cubin(&name), Some(Ok(cubin)), "{name}");
        }
        pack.decompress_ahead(|_| true);
        let (name, cubin) = kernels().swap_remove(40);
        assert_eq!(pack.cubin(&name), Some(Ok(cubin)), "{name}");
    }

    #[test]
    fn no_bytes_are_no_kernels() {
        assert!(Pack::read(&[][..]).unwrap().is_empty());
        let empty = write(&[], "", "", &[]).unwrap();
        assert!(Pack::read(empty).unwrap().is_empty());
    }

    #[test]
    fn a_kernel_that_is_there_twice_is_refused() {
        let twice = [("one".to_owned(), vec![1]), ("one".to_owned(), vec![2])];
        let groups = [Group::new(&twice[..1]), Group::new(&twice[1..])];
        assert!(write(&groups, "", "", &[]).is_err());
    }

    #[test]
    fn only_a_kernel_of_a_former_group_of_zstandard_without_a_base_is_a_base() {
        let kernels = kernels();
        let group = |compression, base: Option<(usize, usize)>, kernel: usize| Group {
            compression,
            base: base.map(|(group, kernel)| Base { group, kernel }),
            kernels: &kernels[kernel..=kernel],
        };
        let (zstandard, lzma2) = (Compression::Zstandard, Compression::Lzma2);
        let first = group(zstandard, None, 0);
        let taken = |others: &[Group]| write(&[&[first], others].concat(), "", "", &[]).is_ok();
        let second = group(zstandard, Some((0, 0)), 1);
        assert!(taken(&[second]));
        assert!(!taken(&[group(zstandard, Some((0, 1)), 1)]), "no kernel");
        assert!(!taken(&[group(zstandard, Some((1, 0)), 1)]), "itself");
        assert!(!taken(&[second, group(zstandard, Some((1, 0)), 2)]), "one with a base");
        let of_lzma2 = group(lzma2, None, 1);
        assert!(!taken(&[of_lzma2, group(zstandard, Some((1, 0)), 2)]), "one of LZMA2");
        assert!(!taken(&[group(lzma2, Some((0, 0)), 1)]), "for LZMA2");
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
