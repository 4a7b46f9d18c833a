//! The assemblers that tests run on PTX.

use std::env;
use std::io::{self, Write};

use pgemm_ptx::ptxas::Ptxas;

/// Every assembler that `scripts/ptxas.sh` installed, or else the one that `PGEMM_PTXAS` or `PATH`
/// names. If there is none, this says so, or fails if `PGEMM_REQUIRE_PTXAS=1` requires one.
pub fn assemblers() -> Vec<Ptxas> {
    let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.tools");
    let mut assemblers = Ptxas::installed_in(tools.as_ref());
    if assemblers.is_empty() {
        assemblers.extend(Ptxas::find());
    }
    if assemblers.is_empty() {
        let required = env::var_os("PGEMM_REQUIRE_PTXAS").is_some_and(|value| value == "1");
        assert!(!required, "PGEMM_REQUIRE_PTXAS is 1, and no ptxas is there: run scripts/ptxas.sh");
        // This bypasses the test harness's capture. If stderr is closed, the message is lost.
        let _ = io::stderr().write_all(b"SKIPPED: no ptxas; scripts/ptxas.sh installs it\n");
    }
    assemblers
}
