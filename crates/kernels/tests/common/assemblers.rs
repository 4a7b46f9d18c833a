//! The assemblers that tests put PTX through.

use std::env;
use std::io::{self, Write};

use pgemm_ptx::ptxas::Ptxas;

/// Every assembler that is installed, else the one that `PGEMM_PTXAS` or `PATH` names. Where there is none, this says so, or
/// fails if `PGEMM_REQUIRE_PTXAS=1` asks for one.
pub fn assemblers() -> Vec<Ptxas> {
    let mut assemblers = Ptxas::installed();
    if assemblers.is_empty() {
        assemblers.extend(Ptxas::find());
    }
    if assemblers.is_empty() {
        let required = env::var_os("PGEMM_REQUIRE_PTXAS").is_some_and(|value| value == "1");
        assert!(!required, "PGEMM_REQUIRE_PTXAS is 1, and no ptxas is there: run scripts/ptxas.sh");
        // Past the test harness's capture. Where stderr is closed there is nobody to tell.
        let _ = io::stderr().write_all(b"SKIPPED: no ptxas; scripts/ptxas.sh installs it\n");
    }
    assemblers
}
