use super::*;

/// Each says what was asked, what the limit is and what to do.
#[test]
fn what_only_other_machines_say_is_complete() {
    let not_hopper = Error::NotHopper { name: "NVIDIA A100".into(), major: 8, minor: 0 };
    let out_of_memory = Error::OutOfMemory { requested: 300, free: 200, total: 250 };
    let too_old = Error::DriverTooOld {
        found: DriverVersion { major: 11, minor: 8 },
        needed: crate::driver::MINIMUM_DRIVER,
    };
    let report = pgemm_ptx::ResourceReport {
        stack_bytes: 8,
        warnings: vec!["info: (C7510) serialised".into()],
        ..Default::default()
    };
    let unclean = Error::UncleanKernel {
        spec: "bf16-kk-bf16-64x64x64-s10-w1-c1x1".parse().unwrap(),
        report: report.into(),
    };
    let too_large = Error::ClusterDoesNotFit {
        spec: Box::new("bf16-kk-bf16-128x128x64-s4-w2-c4x2".parse().unwrap()),
        needed: 8,
        sms: 14,
    };
    for (error, parts) in [
        (
            too_large,
            [
                "needs 8 SMs of one GPC at the same time, and of the 14 SMs of this device",
                "MIG instance or another process",
                "Ask for a cluster of 1x1",
            ],
        ),
        (
            not_hopper,
            [
                "NVIDIA A100 has compute capability 8.0",
                "need 9.0 (Hopper",
                "or use the cpu backend",
            ],
        ),
        (out_of_memory, ["asked for 300 bytes", "200 of 250 are free", "use smaller matrices"]),
        (too_old, ["supports CUDA 11.8", "need CUDA 12.3 or later", "Update the NVIDIA driver"]),
        (
            unclean,
            [
                "kernel bf16-kk-bf16-64x64x64-s10-w1-c1x1 was asked for",
                "8 bytes of stack, info: (C7510) serialised",
                "another spec, or leave the kernel to the planner",
            ],
        ),
    ] {
        let text = error.to_string();
        for part in parts {
            assert!(text.contains(part), "'{part}' is missing in: {text}");
        }
    }
}

/// `main` prints this form of an error that it returns.
#[test]
fn the_debug_form_is_the_message_with_its_causes() {
    let missing = std::io::Error::new(std::io::ErrorKind::NotFound, "not there");
    let error = Error::Io { path: "a.kernel".into(), source: missing };
    assert_eq!(format!("{error:?}"), error.to_string());
    assert!(error.to_string().contains("not there"), "the message names its cause");

    #[derive(Debug, thiserror::Error)]
    #[error("the outer message")]
    struct Outer(#[source] std::num::ParseIntError);
    let inner = "x".parse::<u32>().unwrap_err();
    let outer = std::io::Error::other(Outer(inner));
    let error = Error::NoThreads { source: outer };
    let text = format!("{error:?}");
    assert!(text.starts_with(&error.to_string()), "{text}");
    assert!(text.ends_with("\n  caused by: invalid digit found in string"), "{text}");
    assert_eq!(text.matches("the outer message").count(), 1, "{text}");
}
