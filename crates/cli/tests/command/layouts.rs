//! `pgemm layout`.

use crate::common::pgemm;

fn last(arguments: &[&str]) -> String {
    let arguments = ["layout"].iter().chain(arguments);
    pgemm(arguments).fine().last_line().to_owned()
}

/// The last line is the result. Examples of CuTe's documentation, and some worked out by hand.
#[test]
fn every_operation_ends_with_its_result() {
    for (arguments, expected) in [
        (&["((2,4),8):((1,2),16)"][..], "((2,4),8):((1,2),16)"),
        (&["(4,8)"], "(4,8):(1,4)"),
        (&["((2,4),8):((1,2),16)", "--coalesce"], "(8,8):(1,16)"),
        (&["(2,(1,6)):(1,(6,2))", "--coalesce"], "12:1"),
        (&["(6,2):(8,2)", "--compose", "(4,3):(3,1)"], "((2,2),3):((24,2),8)"),
        (&["20:2", "--compose", "(5,4):(4,1)"], "(5,4):(8,2)"),
        (&["4:2", "--complement", "24"], "(2,3):(1,8)"),
        (&["(4,6):(1,4)", "--complement", "24"], "1:0"),
        (&["(4,2,3):(2,1,8)", "--divide", "4:2"], "((2,2),(2,3)):((4,1),(2,8))"),
        (
            &["(9,(4,8)):(59,(13,1))", "--divide", "(3:3,(2,4):(1,8))"],
            "((3,3),((2,4),(2,2))):((177,59),((13,2),(26,1)))",
        ),
        (&["(2,2):(4,1)", "--product", "6:1"], "((2,2),(2,3)):((4,1),(2,8))"),
        (&["(4,8):(8,1)", "--right-inverse"], "(8,4):(4,1)"),
        (&["(4,8):(8,1)", "--left-inverse"], "(8,4):(4,1)"),
        (&["(4,1,8):(8,0,1)", "--left-inverse"], "(8,4):(4,1)"),
        (&["Sw<3,4,3> o 0 o (8,64):(64,1)"], "Sw<3,4,3> o 0 o (8,64):(64,1)"),
    ] {
        assert_eq!(last(arguments), expected, "{arguments:?}");
        let arguments = ["layout"].iter().chain(arguments).chain(&["--json"]);
        let json = pgemm(arguments).fine().json();
        assert_eq!(json["result"], expected);
    }
}

#[test]
fn figures_are_those_of_the_result() {
    let json = pgemm(["layout", "4:2", "--complement", "24", "--json"]).fine().json();
    let figures =
        ["layout", "operation", "rank", "size", "cosize"].map(|name| json[name].to_string());
    assert_eq!(figures, ["\"4:2\"", "\"complement 24\"", "2", "6", "18"]);
    let text = pgemm(["layout", "4:2", "--complement", "24"]).fine().stdout;
    assert!(text.contains("rank 2, size 6, cosize 18"), "{text}");
}

#[test]
fn drawings_are_written() {
    let folder = tempfile::tempdir().unwrap();
    for (index, layout) in ["(4,8):(8,1)", "Sw<3,4,3> o 0 o (8,64):(64,1)"].iter().enumerate() {
        let path = folder.path().join(format!("{index}.svg"));
        let run = pgemm(["layout", layout, "--svg", path.to_str().unwrap()]).fine();
        assert_eq!(run.last_line(), *layout);
        let drawing = std::fs::read_to_string(&path).unwrap();
        assert!(drawing.starts_with("<svg") && drawing.trim_end().ends_with("</svg>"));
        assert!(drawing.matches("<text").count() >= 32);
    }
}

#[test]
fn layouts_that_cannot_be() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("none/x.svg");
    let big = folder.path().join("x.svg");
    for (arguments, parts) in [
        (&["(4,8:(8,1)"][..], &["cannot parse `(4,8:(8,1)` at byte 10", "closing bracket"][..]),
        (&[""], &["cannot parse", "expected an integer"]),
        (&["99999999999999999999:1"], &["fits 64 bits"]),
        (&["(1000000000000,1000000000000)"], &["does not fit a 64-bit integer"]),
        (
            &["(8,8):(8,1)", "--compose", "(5,2):(2,1)"],
            &["5:2", "divisibility", "choose an extent"],
        ),
        (&["4:2", "--complement", "-24"], &["-24", "at least 1"]),
        (&["4:2", "--coalesce", "--left-inverse"], &["cannot be used with"]),
        // Two coordinates have one index, because of a stride of 0 or since modes overlap.
        (&["(4,4):(0,0)", "--left-inverse"], &["two coordinates to the same index"]),
        (&["(4,4):(1,2)", "--left-inverse"], &["two coordinates to the same index"]),
        (
            &["Sw<3,4,3> o 0 o (8,64):(64,1)", "--coalesce"],
            &["is swizzled", "Leave the swizzle out"],
        ),
        (
            &["(4,8)", "--svg", svg.to_str().unwrap()],
            &["cannot write", "Check that the folder exists"],
        ),
        (&["(1000000,1000000)", "--svg", big.to_str().unwrap()], &["the limit is 16384"]),
    ] {
        pgemm(["layout"].iter().chain(arguments)).refused(parts);
    }
    assert!(!big.exists());
}
