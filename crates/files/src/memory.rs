//! Host memory: what is available, and numbers of bytes as text.

/// Bytes that new allocations may take without swapping, or `None` if the operating system doesn't
/// say.
pub fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The available memory, if a matrix of this many bytes does not fit it.
pub fn too_little_for(bytes: u64) -> Option<u64> {
    available().filter(|available| bytes > *available)
}

/// Bytes for people.
pub fn bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..0x10_0000 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_fits_and_more_than_any_machine_has_does_not() {
        assert_eq!(too_little_for(1 << 10), None);
        assert_eq!(too_little_for(1 << 60), available());
    }

    #[test]
    fn bytes_have_the_unit_that_fits() {
        assert_eq!(bytes(1023), "1023 bytes");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(3 << 20), "3.0 MiB");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
    }
}
