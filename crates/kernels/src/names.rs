//! What the specs of all families have in common: names that parse back, their majors, and knobs of few legal values.

use std::str::Chars;

use pgemm_ir::OperandMajor;

/// Gives a spec that has a `parse` function for its names the conversions from and to text.
macro_rules! has_name {
    ($spec:ident, $error:ident) => {
        impl std::str::FromStr for $spec {
            type Err = $error;

            fn from_str(name: &str) -> Result<Self, $error> {
                // Only the canonical spelling, so that a name is a key.
                parse(name)
                    .filter(|spec| spec.to_string() == name)
                    .ok_or_else(|| $error::Name { name: name.to_owned() })
            }
        }

        impl TryFrom<String> for $spec {
            type Error = $error;

            fn try_from(name: String) -> Result<Self, $error> {
                name.parse()
            }
        }

        impl From<$spec> for String {
            fn from(spec: $spec) -> String {
                spec.to_string()
            }
        }
    };
}
pub(crate) use has_name;

/// Reads the majors of A and B.
pub(crate) fn majors(letters: &mut Chars<'_>) -> Option<(OperandMajor, OperandMajor)> {
    let mut major = |along_mn| match letters.next()? {
        'k' => Some(OperandMajor::K),
        letter if letter == along_mn => Some(OperandMajor::Mn),
        _ => None,
    };
    Some((major('m')?, major('n')?))
}

/// The letter of a major.
pub(crate) fn major_name(major: OperandMajor, along_mn: &'static str) -> &'static str {
    match major {
        OperandMajor::K => "k",
        OperandMajor::Mn => along_mn,
    }
}

/// Checks a knob that has few legal values.
///
/// # Errors
/// Which these are, and the nearest.
pub(crate) fn one_of(asked: u32, legal: &[u32]) -> Result<(), (String, u32)> {
    if legal.contains(&asked) {
        return Ok(());
    }
    let nearest = legal.iter().copied().min_by_key(|value| value.abs_diff(asked));
    let names: Vec<String> = legal.iter().map(u32::to_string).collect();
    Err((format!("must be one of {}", names.join(", ")), nearest.unwrap_or(asked)))
}

/// Consumer warps along m that make up one warpgroup or two with some along n.
pub(crate) const WARPS_ALONG_M: [u32; 4] = [1, 2, 4, 8];

/// Those along n beside so many along m.
pub(crate) fn warps_along_n(along_m: u32) -> &'static [u32] {
    match along_m {
        1 => &[4, 8],
        2 => &[2, 4],
        4 => &[1, 2],
        _ => &[1],
    }
}
