//! What the assembler says of a kernel: registers, stack, spills and warnings. `ptxas -v` and the driver's JIT info log
//! (`CU_JIT_LOG_VERBOSE`) share the format.

/// The resources of an assembled kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceReport {
    /// Registers per thread at launch.
    pub registers: u32,
    /// Named barriers.
    pub barriers: u32,
    /// Static shared memory in bytes; dynamic shared memory is not in the log.
    pub smem_bytes: u32,
    /// Stack frame in bytes per thread.
    pub stack_bytes: u32,
    /// Bytes that each thread stores to local memory for want of registers.
    pub spill_store_bytes: u32,
    /// Bytes that each thread loads back.
    pub spill_load_bytes: u32,
    /// Lines with a warning or a code such as `C7510`, which say what the assembler could not do: ignored
    /// `setmaxnreg`, serialised wgmma, spills.
    pub warnings: Vec<String>,
}

impl ResourceReport {
    /// Reads a log; `None` where it reports on no kernel, as when the driver had the code in its cache. Of several
    /// kernels in one log, the largest figure of each kind.
    pub fn parse(log: &str) -> Option<ResourceReport> {
        let mut report = ResourceReport::default();
        let mut found = false;
        for line in log.lines() {
            if let Some(registers) = number_before(line, " registers") {
                found = true;
                report.registers = report.registers.max(registers);
            }
            let figures = [
                (&mut report.barriers, " barriers"),
                (&mut report.smem_bytes, " bytes smem"),
                (&mut report.stack_bytes, " bytes stack frame"),
                (&mut report.spill_store_bytes, " bytes spill stores"),
                (&mut report.spill_load_bytes, " bytes spill loads"),
            ];
            for (figure, unit) in figures {
                *figure = (*figure).max(number_before(line, unit).unwrap_or(0));
            }
            if is_warning(line) {
                report.warnings.push(line.trim().to_owned());
            }
        }
        found.then_some(report)
    }

    /// No stack, no spill and no warning: what every kernel of the catalogue must reach.
    pub fn is_clean(&self) -> bool {
        self.stack_bytes == 0
            && self.spill_store_bytes == 0
            && self.spill_load_bytes == 0
            && self.warnings.is_empty()
    }
}

/// The number that stands right before `unit`.
fn number_before(line: &str, unit: &str) -> Option<u32> {
    let (before, _) = line.split_once(unit)?;
    before.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Warnings, and remarks with a code in parentheses: `(C7510)`.
fn is_warning(line: &str) -> bool {
    let coded = line.split("(C").skip(1).any(|rest| {
        rest.split_once(')')
            .is_some_and(|(code, _)| code.len() == 4 && code.bytes().all(|b| b.is_ascii_digit()))
    });
    coded || line.contains("warning")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPILLS: &str = "\
ptxas info    : (C7512) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register resources for the wgmma pipeline in the function 'gemm'
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'gemm' for 'sm_90a'
ptxas info    : Function properties for gemm
    64 bytes stack frame, 72 bytes spill stores, 68 bytes spill loads
ptxas info    : Used 168 registers, used 16 barriers, 64 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Compile time = 9.134 ms
";

    #[test]
    fn figures_and_warnings_are_found() {
        let report = ResourceReport::parse(SPILLS).unwrap();
        assert_eq!(report.registers, 168);
        assert_eq!(report.barriers, 16);
        assert_eq!(report.smem_bytes, 1024);
        assert_eq!(report.stack_bytes, 64);
        assert_eq!((report.spill_store_bytes, report.spill_load_bytes), (72, 68));
        assert_eq!(report.warnings.len(), 1);
        assert!(report.warnings[0].contains("C7512"));
        assert!(!report.is_clean());
    }

    #[test]
    fn a_clean_log_is_clean() {
        let log = "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
                   ptxas info    : Used 90 registers, used 1 barriers";
        let report = ResourceReport::parse(log).unwrap();
        assert_eq!((report.registers, report.barriers), (90, 1));
        assert!(report.is_clean());
    }

    #[test]
    fn a_log_without_kernels_is_no_report() {
        assert_eq!(ResourceReport::parse(""), None);
        assert_eq!(ResourceReport::parse("ptxas info    : 0 bytes gmem"), None);
    }
}
