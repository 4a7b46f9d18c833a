//! The assembler's report on a kernel: registers, stack, spills and warnings. `ptxas -v` and the
//! driver's JIT info log (`CU_JIT_LOG_VERBOSE`) share the format.

use serde::{Deserialize, Serialize};

/// The resources of an assembled kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceReport {
    /// Registers per thread at launch. `None` if the log reports on no kernel, as when the driver
    /// had the code in its own cache.
    pub registers: Option<u32>,
    /// Named barriers.
    pub barriers: u32,
    /// Static shared memory in bytes; dynamic shared memory is not in the log.
    pub smem_bytes: u32,
    /// Stack frame in bytes per thread.
    pub stack_bytes: u32,
    /// Bytes that each thread stores to local memory because registers do not suffice.
    pub spill_store_bytes: u32,
    /// Bytes that each thread loads back from there.
    pub spill_load_bytes: u32,
    /// Moves of a thread's register to a uniform register in the code. `None` if there is only a log.
    /// Many mean that the assembler does not see that warps stay together.
    pub moves_to_uniform: Option<u32>,
    /// Lines with a warning or with a code such as `C7510`. They report what the assembler could
    /// not do: ignored `setmaxnreg`, serialised wgmma, spills.
    pub warnings: Vec<String>,
}

impl ResourceReport {
    /// Reads a log. If it reports on several kernels, the result has the largest figure of each
    /// kind.
    pub fn parse(log: &str) -> ResourceReport {
        let mut report = ResourceReport::default();
        for line in log.lines() {
            if let Some(registers) = number_before(line, " registers") {
                report.registers = report.registers.max(Some(registers));
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
        report
    }

    /// Whether there is no stack, no spill and no warning. Every kernel of the catalogue must be
    /// clean.
    pub fn is_clean(&self) -> bool {
        self.stack_bytes == 0
            && self.spill_store_bytes == 0
            && self.spill_load_bytes == 0
            && self.warnings.is_empty()
    }

    /// What keeps the kernel from being [clean](Self::is_clean), one entry each.
    pub fn findings(&self) -> Vec<String> {
        let figures = [
            (self.stack_bytes, "bytes of stack"),
            (self.spill_store_bytes, "bytes spilled"),
            (self.spill_load_bytes, "bytes of spills loaded"),
        ];
        let figures = figures.into_iter().filter(|(bytes, _)| *bytes > 0);
        let figures = figures.map(|(bytes, what)| format!("{bytes} {what}"));
        figures.chain(self.warnings.iter().cloned()).collect()
    }
}

/// The number right before `unit`.
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
        let report = ResourceReport::parse(SPILLS);
        assert_eq!(report.registers, Some(168));
        assert_eq!(report.barriers, 16);
        assert_eq!(report.smem_bytes, 1024);
        assert_eq!(report.stack_bytes, 64);
        assert_eq!((report.spill_store_bytes, report.spill_load_bytes), (72, 68));
        assert_eq!(report.warnings.len(), 1);
        assert!(report.warnings[0].contains("C7512"));
        assert!(!report.is_clean());
        let findings = report.findings();
        assert_eq!(
            findings[..3],
            ["64 bytes of stack", "72 bytes spilled", "68 bytes of spills loaded"]
        );
        assert_eq!(findings[3..], report.warnings);
    }

    #[test]
    fn a_clean_log_is_clean() {
        let log = "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
                   ptxas info    : Used 90 registers, used 1 barriers";
        let report = ResourceReport::parse(log);
        assert_eq!((report.registers, report.barriers), (Some(90), 1));
        assert!(report.is_clean());
        assert_eq!(report.findings(), [""; 0]);
    }

    /// Lines of the driver's JIT begin in another way.
    #[test]
    fn the_drivers_log_is_read_alike() {
        let log = "info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized\n\
                   ptxas         .     456 bytes stack frame, 728 bytes spill stores, 364 bytes spill loads\n\
                   info    : Used 255 registers, used 1 barriers\n\
                   ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
                   info    : Used 12 registers";
        let report = ResourceReport::parse(log);
        assert_eq!((report.registers, report.stack_bytes), (Some(255), 456));
        assert_eq!((report.spill_store_bytes, report.spill_load_bytes), (728, 364));
        assert_eq!(report.warnings.len(), 1);
        for unclean in
            ["8 bytes stack frame", "8 bytes spill stores", "8 bytes spill loads", "(C7508)"]
        {
            assert!(!ResourceReport::parse(unclean).is_clean(), "{unclean}");
        }
    }

    #[test]
    fn logs_that_say_nothing_do_no_harm() {
        for log in [
            "",
            "ptxas info    : 0 bytes gmem",
            " registers",
            "(C",
            "(C)",
            "é registers",
            "99999999999 registers",
        ] {
            let report = ResourceReport::parse(log);
            assert_eq!(report.registers, None, "{log}");
            assert!(report.is_clean(), "{log}");
        }
    }
}
