//! Hashes the sources, for the constant `SOURCES`.

fn main() -> std::io::Result<()> {
    pgemm_sources::emit()
}
