//! Reads packs. A pack consists of a header, its checksum and the compressed cubins. All numbers
//! are little-endian.
//!
//! | part | content |
//! |---|---|
//! | magic | 8 bytes, `PGEMMPAK` |
//! | format | 4 bytes, [`FORMAT`] |
//! | length of the index | 4 bytes |
//! | checksum of the index | 32 bytes, BLAKE3 |
//! | index | generator, assembler; number of groups, groups; number of kernels, kernels by name |
//! | groups | Zstandard frames, one after the other |
//!
//! Cubins are compressed in groups, since similar ones have much in common. A text has its length
//! in 2 bytes before it. A group has the bytes of its frame and of its cubins (4 bytes each). A
//! kernel has its name as a text, the number of its group, the place of its cubin in the group, the
//! bytes of the cubin (4 bytes each), and the first 16 bytes of the BLAKE3 hash of the cubin.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) const MAGIC: [u8; 8] = *b"PGEMMPAK";
/// Raise it when the meaning of a pack changes.
pub(crate) const FORMAT: u32 = 1;
/// Magic, format, length and checksum of the index.
pub(crate) const HEADER_BYTES: usize = 8 + 4 + 4 + blake3::OUT_LEN;
pub(crate) const HASH_BYTES: usize = 16;
/// Most bytes of a group of cubins.
const MOST_BYTES: u32 = 64 << 20;
/// Groups that stay decompressed, since the kernels of a program are similar.
const KEPT_GROUPS: usize = 4;

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
    bytes: Cow<'static, [u8]>,
    generator: Range<usize>,
    assembler: Range<usize>,
    groups: Vec<Group>,
    /// Sorted by name.
    entries: Vec<Entry>,
    /// The numbers of groups that were decompressed last, with their cubins.
    kept: Mutex<Vec<(u32, Arc<Vec<u8>>)>>,
}

#[derive(Clone, Debug)]
struct Group {
    frame: Range<usize>,
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
        let bytes = bytes.into();
        if bytes.is_empty() {
            return Ok(Pack {
                bytes,
                generator: 0..0,
                assembler: 0..0,
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
        let mut groups: Vec<Group> = vec![];
        for _ in 0..index.number()? {
            let begin = groups.last().map_or(end, |last| last.frame.end);
            let frame = begin..begin.saturating_add(index.number()? as usize);
            bytes.get(frame.clone()).ok_or(PackError::Truncated)?;
            let group = Group { frame, bytes: index.number()? };
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
        Ok(Pack { generator, assembler, groups, entries, bytes, kept: Mutex::default() })
    }

    /// The hash of the code that generated the kernels.
    pub fn generator(&self) -> &str {
        self.text(&self.generator)
    }

    /// The assembler, with its version.
    pub fn assembler(&self) -> &str {
        self.text(&self.assembler)
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
        let Entry { group, cubin, hash, .. } = &self.entries[self.find(name)?];
        let cubin = self.group(*group).map(|group| group[cubin.clone()].to_vec());
        let damaged = || PackError::Kernel { name: name.to_owned() };
        Some(cubin.filter(|cubin| hash_of(cubin) == *hash).ok_or_else(damaged))
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.entries.binary_search_by(|entry| self.text(&entry.name).cmp(name)).ok()
    }

    /// The cubins of a group. `None` if it is damaged.
    fn group(&self, number: u32) -> Option<Arc<Vec<u8>>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, cubins)) = kept.iter().find(|(kept, _)| *kept == number) {
            return Some(cubins.clone());
        }
        let Group { frame, bytes } = self.groups.get(number as usize)?;
        let cubins = zstd::bulk::decompress(&self.bytes[frame.clone()], *bytes as usize).ok()?;
        let cubins = Some(cubins).filter(|cubins| cubins.len() == *bytes as usize)?;
        kept.truncate(KEPT_GROUPS - 1);
        kept.insert(0, (number, Arc::new(cubins)));
        Some(kept[0].1.clone())
    }

    fn text(&self, place: &Range<usize>) -> &str {
        // The reader has checked every text.
        std::str::from_utf8(&self.bytes[place.clone()]).unwrap_or_default()
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
