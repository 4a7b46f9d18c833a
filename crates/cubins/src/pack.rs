//! Reads packs. A pack consists of a header, its checksum and the compressed cubins. All numbers
//! are little-endian.
//!
//! | part | content |
//! |---|---|
//! | magic | 8 bytes, `PGEMMPAK` |
//! | format | 4 bytes, [`FORMAT`] |
//! | length of the index | 4 bytes |
//! | checksum of the index | 32 bytes, BLAKE3 |
//! | index | generator, assembler, notes; number of groups, groups; number of kernels, kernels |
//! | groups | compressed cubins, one group after the other |
//!
//! Cubins are compressed in groups, since similar ones have much in common. A text has its length
//! in 2 bytes before it, and the notes have theirs in 4. A group has the number of its
//! [`Compression`] in a byte; its base, which is a part of a former group: 1 plus the number of
//! that one, or 0 for none, and the place of the part and its bytes; its compressed bytes and the
//! bytes of its cubins (4 bytes each). With Zstandard each cubin of a group is a frame of its own,
//! whose prefix is what comes before it: the group's base, and the former cubins of the group. So a
//! cubin needs none of those that follow it.
//! Kernels are sorted by their names. A kernel has its name as a text, the number of its group, the
//! place of its cubin in the group, the bytes of the cubin (4 bytes each), and the first 16 bytes
//! of the BLAKE3 hash of the cubin. A cubin begins at a multiple of [`ALIGNMENT`].

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use lzma_rust2::Lzma2Reader;
use zstd::zstd_safe::{self, DCtx};

pub(crate) const MAGIC: [u8; 8] = *b"PGEMMPAK";
/// Raise it when the meaning of a pack changes.
pub(crate) const FORMAT: u32 = 4;
/// Magic, format, length and checksum of the index.
pub(crate) const HEADER_BYTES: usize = 8 + 4 + 4 + blake3::OUT_LEN;
pub(crate) const HASH_BYTES: usize = 16;
/// Cubins begin at multiples of it in their group. An instruction has as many bytes, and LZMA2 is
/// told so.
pub(crate) const ALIGNMENT: usize = 16;
/// Most bytes of a group of cubins.
const MOST_BYTES: u32 = 64 << 20;
/// Bytes of groups that stay decompressed, beyond one group, since the kernels of a program are
/// similar.
const KEPT_BYTES: usize = 24 << 20;

/// How a group of cubins is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Zstandard, which is decompressed several times faster.
    Zstandard = 0,
    /// LZMA2, which takes less space.
    Lzma2 = 1,
}

/// Why a pack or a kernel of it cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// The beginning is another one.
    #[error("it is no pack of kernels")]
    Magic,
    /// The format is another one.
    #[error("its format is {found}, and this version of the library reads format {FORMAT}")]
    Format {
        /// The format.
        found: u32,
    },
    /// There are fewer bytes than the header says.
    #[error("it ends early: it is cut off or damaged")]
    Truncated,
    /// The index is damaged.
    #[error("the checksum of its index does not match: it is damaged")]
    Index,
    /// The index was written wrongly.
    #[error("its index is malformed: {what}")]
    Malformed {
        /// What is wrong.
        what: &'static str,
    },
    /// A kernel is damaged.
    #[error("the kernel {name} in it is damaged")]
    Kernel {
        /// The kernel.
        name: String,
    },
}

/// A pack of kernels.
#[derive(Debug)]
pub struct Pack {
    bytes: Arc<Cow<'static, [u8]>>,
    generator: Range<usize>,
    assembler: Range<usize>,
    notes: Range<usize>,
    groups: Vec<Group>,
    /// Sorted by name.
    entries: Vec<Entry>,
    kept: Mutex<Kept>,
}

/// What was decompressed.
#[derive(Default)]
struct Kept {
    /// The groups that were used last, with their numbers.
    groups: Vec<(u32, Cubins)>,
    /// What Zstandard works in: some 100 KB.
    context: Option<DCtx<'static>>,
}

impl Kept {
    /// The bytes at a place in a group.
    fn bytes(&mut self, pack: &Pack, number: u32, place: &Range<usize>) -> io::Result<&[u8]> {
        self.use_group(pack, number)?;
        let context = self.context.get_or_insert_with(DCtx::create);
        self.groups[0].1.get(place, context)
    }

    /// Makes a group the first one.
    fn use_group(&mut self, pack: &Pack, number: u32) -> io::Result<()> {
        let known = self.groups.iter().position(|(kept, _)| *kept == number);
        let cubins = match known {
            Some(known) => self.groups.remove(known).1,
            None => self.new_group(pack, &pack.groups[number as usize])?,
        };
        self.groups.insert(0, (number, cubins));
        let mut bytes = 0;
        self.groups.retain(|(kept, cubins)| {
            bytes += cubins.bytes.capacity();
            *kept == number || bytes <= KEPT_BYTES
        });
        Ok(())
    }

    fn new_group(&mut self, pack: &Pack, group: &Group) -> io::Result<Cubins> {
        let (compressed, length) = (group.compressed.clone(), group.bytes as usize);
        let compressed = Compressed { pack: pack.bytes.clone(), place: compressed };
        if group.compression == Compression::Lzma2 {
            let rest = Rest::Lzma2(Box::new(Lzma2Reader::new(compressed, group.bytes, None)));
            return Ok(Cubins { bytes: Vec::with_capacity(length), base: 0, rest });
        }
        let base = match &group.base {
            Some(Base { group, place }) => self.bytes(pack, *group, place)?,
            None => &[],
        };
        let mut bytes = Vec::with_capacity(base.len() + length);
        bytes.extend_from_slice(base);
        Ok(Cubins { base: bytes.len(), bytes, rest: Rest::Zstandard(compressed) })
    }
}

impl Group {
    /// Whether it can be another one's base.
    fn is_alone(&self) -> bool {
        self.compression == Compression::Zstandard && self.base.is_none()
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("groups", &self.groups).finish_non_exhaustive()
    }
}

/// The part of a group that comes before the first cubin of another one.
#[derive(Clone, Debug)]
struct Base {
    group: u32,
    place: Range<usize>,
}

#[derive(Clone, Debug)]
struct Group {
    compression: Compression,
    base: Option<Base>,
    compressed: Range<usize>,
    bytes: u32,
}

#[derive(Clone, Debug)]
struct Entry {
    name: Range<usize>,
    group: u32,
    /// The place of the cubin in its group.
    cubin: Range<usize>,
    hash: [u8; HASH_BYTES],
}

impl Pack {
    /// Reads a pack and checks its index. No bytes at all are a pack without kernels.
    ///
    /// # Errors
    /// The bytes are no pack, or a damaged one.
    pub fn read(bytes: impl Into<Cow<'static, [u8]>>) -> Result<Pack, PackError> {
        let bytes = Arc::new(bytes.into());
        if bytes.is_empty() {
            return Ok(Pack {
                bytes,
                generator: 0..0,
                assembler: 0..0,
                notes: 0..0,
                groups: vec![],
                entries: vec![],
                kept: Mutex::default(),
            });
        }
        let mut header = Reader { bytes: &bytes, at: 0 };
        if header.array()? != MAGIC {
            return Err(PackError::Magic);
        }
        let format = header.number()?;
        if format != FORMAT {
            return Err(PackError::Format { found: format });
        }
        let length = header.number()? as usize;
        let checksum: [u8; blake3::OUT_LEN] = header.array()?;
        let end = HEADER_BYTES.checked_add(length).ok_or(PackError::Truncated)?;
        let index = bytes.get(HEADER_BYTES..end).ok_or(PackError::Truncated)?;
        if *blake3::hash(index).as_bytes() != checksum {
            return Err(PackError::Index);
        }
        let mut index = Reader { bytes: &bytes[..end], at: HEADER_BYTES };
        let (generator, assembler) = (index.text()?, index.text()?);
        let length = index.number()? as usize;
        let notes = index.take(length)?;
        let mut groups: Vec<Group> = vec![];
        for _ in 0..index.number()? {
            let compression = match index.array()? {
                [0] => Compression::Zstandard,
                [1] => Compression::Lzma2,
                _ => return Err(PackError::Malformed { what: "a compression is unknown" }),
            };
            let [group, place, length] = [index.number()?, index.number()?, index.number()?];
            let place = place as usize..(place as usize).saturating_add(length as usize);
            let base = group.checked_sub(1).map(|group| Base { group, place });
            let can_be_base = |base: &Base| {
                let group = groups.get(base.group as usize);
                group
                    .is_some_and(|group| group.is_alone() && base.place.end <= group.bytes as usize)
            };
            let is_lzma2 = compression == Compression::Lzma2;
            if base.as_ref().is_some_and(|base| is_lzma2 || !can_be_base(base)) {
                return Err(PackError::Malformed { what: "a group has a base that cannot be one" });
            }
            let begin = groups.last().map_or(end, |last| last.compressed.end);
            let compressed = begin..begin.saturating_add(index.number()? as usize);
            bytes.get(compressed.clone()).ok_or(PackError::Truncated)?;
            let group = Group { compression, base, compressed, bytes: index.number()? };
            if group.bytes > MOST_BYTES {
                return Err(PackError::Malformed { what: "a group is too large" });
            }
            groups.push(group);
        }
        let mut entries: Vec<Entry> = vec![];
        for _ in 0..index.number()? {
            let entry = index.entry()?;
            let group = groups.get(entry.group as usize);
            if group.is_none_or(|group| entry.cubin.end > group.bytes as usize) {
                return Err(PackError::Malformed { what: "a kernel is outside of its group" });
            }
            let name = |entry: &Entry| &bytes[entry.name.clone()];
            if entries.last().is_some_and(|last| name(last) >= name(&entry)) {
                return Err(PackError::Malformed { what: "the names are not in order" });
            }
            entries.push(entry);
        }
        Ok(Pack { generator, assembler, notes, groups, entries, bytes, kept: Mutex::default() })
    }

    /// The hash of the code that generated the kernels.
    pub fn generator(&self) -> &str {
        self.text(&self.generator)
    }

    /// The assembler, with its version.
    pub fn assembler(&self) -> &str {
        self.text(&self.assembler)
    }

    /// What the pack holds besides kernels.
    pub fn notes(&self) -> &[u8] {
        &self.bytes[self.notes.clone()]
    }

    /// The number of kernels.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no kernel.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The names of the kernels, in order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.entries.iter().map(|entry| self.text(&entry.name))
    }

    /// Whether the kernel is there.
    pub fn contains(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// The cubin of a kernel. `None` if it is not there.
    ///
    /// # Errors
    /// [`PackError::Kernel`] if it is damaged.
    pub fn cubin(&self, name: &str) -> Option<Result<Vec<u8>, PackError>> {
        let entry = &self.entries[self.find(name)?];
        let cubin = self.with(entry, <[u8]>::to_vec).ok();
        let damaged = || PackError::Kernel { name: name.to_owned() };
        Some(cubin.filter(|cubin| hash_of(cubin) == entry.hash).ok_or_else(damaged))
    }

    /// Decompresses kernels that are likely to be asked for, where that takes little time: those
    /// that Zstandard has compressed, as many as stay decompressed.
    pub fn decompress_ahead(&self, is_likely: impl Fn(&str) -> bool) {
        let mut bytes = 0;
        for entry in &self.entries {
            let is_fast = self.groups[entry.group as usize].compression == Compression::Zstandard;
            if !is_fast || !is_likely(self.text(&entry.name)) {
                continue;
            }
            bytes += entry.cubin.len();
            if bytes > KEPT_BYTES {
                return;
            }
            // Who asks for a damaged one is told so.
            self.with(entry, |_| ()).ok();
        }
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.entries.binary_search_by(|entry| self.text(&entry.name).cmp(name)).ok()
    }

    /// What `read` makes of a kernel's decompressed bytes.
    fn with<T>(&self, entry: &Entry, read: impl FnOnce(&[u8]) -> T) -> io::Result<T> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let result = kept.bytes(self, entry.group, &entry.cubin).map(read);
        if result.is_err() {
            // A group that fails is not kept.
            kept.groups.remove(0);
        }
        result
    }

    fn text(&self, place: &Range<usize>) -> &str {
        // The reader has checked every text.
        std::str::from_utf8(&self.bytes[place.clone()]).unwrap_or_default()
    }
}

/// The cubins of a group, decompressed as far as they were needed, behind its base.
struct Cubins {
    bytes: Vec<u8>,
    /// The bytes of the base.
    base: usize,
    rest: Rest,
}

/// What is compressed still.
enum Rest {
    Zstandard(Compressed),
    Lzma2(Box<Lzma2Reader<Compressed>>),
}

impl Cubins {
    fn get(&mut self, place: &Range<usize>, context: &mut DCtx) -> io::Result<&[u8]> {
        let Cubins { bytes, base, rest } = self;
        let place = *base + place.start..*base + place.end;
        let missing = place.end.saturating_sub(bytes.len());
        match rest {
            Rest::Zstandard(frames) => {
                while bytes.len() < place.end {
                    frames.next_frame(bytes, context)?;
                }
            }
            Rest::Lzma2(rest) => drop(rest.by_ref().take(missing as u64).read_to_end(bytes)?),
        }
        bytes.get(place).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl fmt::Debug for Cubins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cubins").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

/// The compressed bytes of a group, which are read from the front.
struct Compressed {
    pack: Arc<Cow<'static, [u8]>>,
    /// The bytes that are left.
    place: Range<usize>,
}

impl Compressed {
    /// Decompresses a frame of Zstandard whose prefix are these bytes, behind them.
    fn next_frame(&mut self, bytes: &mut Vec<u8>, context: &mut DCtx) -> io::Result<()> {
        let failed = |code| io::Error::other(zstd_safe::get_error_name(code));
        let left = &self.pack[self.place.clone()];
        let length = zstd_safe::find_frame_compressed_size(left).map_err(failed)?;
        let frame = left.get(..length).ok_or(io::ErrorKind::UnexpectedEof)?;
        let size = zstd_safe::get_frame_content_size(frame).ok().flatten();
        // There is room for as many bytes as the index says. A damaged frame gets no more.
        let most = bytes.capacity() - bytes.len();
        let size = size.and_then(|size| usize::try_from(size).ok());
        let size = size.filter(|size| (1..=most).contains(size));
        let size = size.ok_or(io::ErrorKind::InvalidData)?;
        let begin = bytes.len();
        bytes.resize(begin + size, 0);
        let written = {
            let (prefix, cubin) = bytes.split_at_mut(begin);
            // Cubins are no dictionaries in Zstandard's own form, so they count as a prefix.
            context.decompress_using_dict(cubin, frame, prefix)
        };
        if !written.is_ok_and(|written| written == size) {
            // What is half decompressed must not be taken for a cubin, nor for a prefix.
            bytes.truncate(begin);
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.place.start += length;
        Ok(())
    }
}

impl Read for Compressed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = (&self.pack[self.place.clone()]).read(buffer)?;
        self.place.start += count;
        Ok(count)
    }
}

/// The part of a cubin's hash that an entry has.
pub(crate) fn hash_of(cubin: &[u8]) -> [u8; HASH_BYTES] {
    let mut hash = [0; HASH_BYTES];
    hash.copy_from_slice(&blake3::hash(cubin).as_bytes()[..HASH_BYTES]);
    hash
}

/// Reads a header or an index.
struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Reader<'_> {
    fn take(&mut self, count: usize) -> Result<Range<usize>, PackError> {
        let place = self.at..self.at.saturating_add(count);
        self.bytes.get(place.clone()).ok_or(PackError::Truncated)?;
        self.at = place.end;
        Ok(place)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PackError> {
        let place = self.take(N)?;
        self.bytes[place].try_into().map_err(|_| PackError::Truncated)
    }

    fn number(&mut self) -> Result<u32, PackError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn text(&mut self) -> Result<Range<usize>, PackError> {
        let length = u16::from_le_bytes(self.array()?);
        let place = self.take(length.into())?;
        match std::str::from_utf8(&self.bytes[place.clone()]) {
            Ok(_) => Ok(place),
            Err(_) => Err(PackError::Malformed { what: "a text is no UTF-8" }),
        }
    }

    /// The next kernel.
    fn entry(&mut self) -> Result<Entry, PackError> {
        let name = self.text()?;
        let [group, place, bytes] = [self.number()?, self.number()?, self.number()?];
        let begin = place as usize;
        let cubin = begin..begin.saturating_add(bytes as usize);
        Ok(Entry { name, group, cubin, hash: self.array()? })
    }
}
