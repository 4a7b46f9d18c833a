//! Reads packs. A pack consists of a header, its checksum and the compressed cubins. All numbers are
//! little-endian.
//!
//! | part | content |
//! |---|---|
//! | magic | 8 bytes, `PGEMMPAK` |
//! | format | 4 bytes, [`FORMAT`] |
//! | length of the index | 4 bytes |
//! | checksum of the index | 32 bytes, BLAKE3 |
//! | index | generator and assembler as texts; number of entries, 4 bytes; the entries, by name |
//! | cubins | Zstandard frames, where the entries say |
//!
//! A text has its length in 2 bytes before it. An entry has the name as a text, the place of its
//! frame behind the index (4 bytes), the bytes of the frame and of the cubin (4 bytes each), the
//! number of the entry whose cubin is the dictionary (4 bytes; [`NO_BASE`] for none), and the first
//! 16 bytes of the BLAKE3 hash of the cubin.

use std::borrow::Cow;
use std::ops::Range;

pub(crate) const MAGIC: [u8; 8] = *b"PGEMMPAK";
/// Raise it when the meaning of a pack changes.
pub(crate) const FORMAT: u32 = 1;
/// Magic, format, length and checksum of the index.
pub(crate) const HEADER_BYTES: usize = 8 + 4 + 4 + blake3::OUT_LEN;
pub(crate) const HASH_BYTES: usize = 16;
/// The number that stands for no dictionary.
pub(crate) const NO_BASE: u32 = u32::MAX;
/// The most cubins that have to be decompressed one after the other for one.
pub(crate) const MOST_LINKS: usize = 4;
/// The largest cubin. The kernels of this library have at most some hundred kilobytes.
const MOST_BYTES: u32 = 16 << 20;

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
    /// Sorted by name.
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    /// Where the name and the frame are.
    name: Range<usize>,
    frame: Range<usize>,
    bytes: u32,
    base: u32,
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
            return Ok(Pack { bytes, generator: 0..0, assembler: 0..0, entries: vec![] });
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
        let count = index.number()?;
        let mut entries: Vec<Entry> = Vec::with_capacity((count as usize).min(length));
        for _ in 0..count {
            let entry = index.entry(end)?;
            if bytes.get(entry.frame.clone()).is_none() {
                return Err(PackError::Truncated);
            }
            if entry.base != NO_BASE && entry.base >= count {
                return Err(PackError::Malformed { what: "a dictionary is no entry" });
            }
            if entries
                .last()
                .is_some_and(|last| bytes[last.name.clone()] >= bytes[entry.name.clone()])
            {
                return Err(PackError::Malformed { what: "the names are not in order" });
            }
            entries.push(entry);
        }
        Ok(Pack { generator, assembler, entries, bytes })
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
        let entry = &self.entries[self.find(name)?];
        let damaged = || PackError::Kernel { name: name.to_owned() };
        let cubin = self.unpack(entry, MOST_LINKS);
        Some(cubin.filter(|cubin| hash_of(cubin) == entry.hash).ok_or_else(damaged))
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.entries.binary_search_by(|entry| self.text(&entry.name).cmp(name)).ok()
    }

    /// The cubin of an entry, whose hash is not checked.
    fn unpack(&self, entry: &Entry, links: usize) -> Option<Vec<u8>> {
        let base = match entry.base {
            NO_BASE => vec![],
            base => self.unpack(self.entries.get(base as usize)?, links.checked_sub(1)?)?,
        };
        let mut decompressor = zstd::bulk::Decompressor::with_dictionary(&base).ok()?;
        let frame = &self.bytes[entry.frame.clone()];
        decompressor.decompress(frame, entry.bytes as usize).ok()
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

    /// The next entry. The frames are behind `end`.
    fn entry(&mut self, end: usize) -> Result<Entry, PackError> {
        let name = self.text()?;
        let [place, packed, bytes, base] =
            [self.number()?, self.number()?, self.number()?, self.number()?];
        if bytes > MOST_BYTES {
            return Err(PackError::Malformed { what: "a kernel is too large" });
        }
        let begin = end.saturating_add(place as usize);
        let frame = begin..begin.saturating_add(packed as usize);
        Ok(Entry { name, frame, bytes, base, hash: self.array()? })
    }
}
