//! What a test wants to know of assembled code, read from the ELF file that the assembler writes.

/// Bytes of an instruction of sm_90.
const INSTRUCTION_BYTES: usize = 16;
/// The lowest 12 bits of an instruction are its opcode. This one moves a thread's register to a
/// uniform register (`R2UR` in NVIDIA's disassembler).
const MOVE_TO_UNIFORM: u16 = 0x2ca;

/// How often the code of a cubin moves a register of a thread to a uniform register. `None` if the
/// bytes are not a cubin.
///
/// Where the assembler sees that the control flow of a warp is uniform, it computes stages, addresses
/// and descriptors in uniform registers and needs few such moves. Where it does not see that, each
/// wgmma needs four.
pub(crate) fn moves_to_uniform(cubin: &[u8]) -> Option<u32> {
    let sections = Sections::of(cubin)?;
    let code = (0..sections.count).filter_map(|index| sections.code(index));
    let instructions = code.flat_map(|code| code.chunks_exact(INSTRUCTION_BYTES));
    let opcode = |bytes: &[u8]| u16::from_le_bytes([bytes[0], bytes[1]]) & 0xfff;
    Some(instructions.filter(|bytes| opcode(bytes) == MOVE_TO_UNIFORM).count() as u32)
}

/// The section headers of a 64-bit little-endian ELF file.
struct Sections<'f> {
    file: &'f [u8],
    headers: usize,
    header_bytes: usize,
    count: usize,
    /// Where the names of sections are.
    names: usize,
}

impl<'f> Sections<'f> {
    fn of(file: &'f [u8]) -> Option<Self> {
        if !file.starts_with(b"\x7fELF") {
            return None;
        }
        let half = |at| number::<2>(file, at);
        let [header_bytes, count, names] = [half(0x3a)?, half(0x3c)?, half(0x3e)?];
        let headers = number::<8>(file, 0x28)?;
        let mut sections = Sections { file, headers, header_bytes, count, names: 0 };
        sections.names = sections.field::<8>(names, 24)?;
        Some(sections)
    }

    /// A field of a section's header.
    fn field<const BYTES: usize>(&self, section: usize, at: usize) -> Option<usize> {
        number::<BYTES>(self.file, self.headers + section * self.header_bytes + at)
    }

    /// The contents of a section if they are a kernel's code.
    fn code(&self, section: usize) -> Option<&'f [u8]> {
        let name = self.names + self.field::<4>(section, 0)?;
        let (start, bytes) = (self.field::<8>(section, 24)?, self.field::<8>(section, 32)?);
        self.file
            .get(name..)?
            .starts_with(b".text.")
            .then(|| self.file.get(start..start + bytes))?
    }
}

/// A little-endian number.
fn number<const BYTES: usize>(file: &[u8], at: usize) -> Option<usize> {
    let bytes = file.get(at..at.checked_add(BYTES)?)?;
    Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file with a section `.text.k` of two instructions, one of which is such a move.
    fn file() -> Vec<u8> {
        let mut file = vec![0; 0x40];
        file[..4].copy_from_slice(b"\x7fELF");
        let names = file.len();
        file.extend(b"\0.text.k\0.names\0");
        let code = file.len();
        let mut instructions = [0_u8; 2 * INSTRUCTION_BYTES];
        instructions[16..24].copy_from_slice(&0x0000_0000_0015_72ca_u64.to_le_bytes());
        file.extend(instructions);
        let headers = file.len();
        for (name, start, bytes) in [(1_u32, code, instructions.len()), (9, names, 16)] {
            let mut header = [0; 64];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[24..32].copy_from_slice(&(start as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(bytes as u64).to_le_bytes());
            file.extend(header);
        }
        file[0x28..0x30].copy_from_slice(&(headers as u64).to_le_bytes());
        for (at, value) in [(0x3a, 64_u16), (0x3c, 2), (0x3e, 1)] {
            file[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        file
    }

    #[test]
    fn moves_are_counted_in_code_only() {
        let file = file();
        assert_eq!(moves_to_uniform(&file), Some(1));
        let mut without_code = file.clone();
        let name = file.windows(5).position(|bytes| bytes == b".text").unwrap();
        without_code[name] = b'-';
        assert_eq!(moves_to_uniform(&without_code), Some(0));
    }

    #[test]
    fn what_is_no_cubin_has_no_count() {
        assert_eq!(moves_to_uniform(b""), None);
        assert_eq!(moves_to_uniform(b"\x7fELF"), None);
        let mut cut = file();
        cut.truncate(100);
        assert_eq!(moves_to_uniform(&cut), None);
    }
}
