//! How faults are written into a source text: each beside what it replaces, and a switch chooses
//! between them when the program runs. So all faults are compiled at once.

use std::ops::Range;

use super::candidates::{Candidate, Form};

/// The variable that names the fault that is switched on.
pub const ACTIVE: &str = "PGEMM_MUTANT";

/// The variable that names a folder, in which every fault that is reached gets a file.
pub const REACHED: &str = "PGEMM_MUTANTS_REACHED";

/// A text with faults.
pub struct Spliced {
    pub text: String,
    /// The bytes of each fault, in the order of the faults that were given.
    pub ranges: Vec<Range<usize>>,
}

/// Writes faults with their numbers into a text. They are in the order of their places, and do not
/// overlap.
pub fn splice<'a>(text: &str, faults: impl IntoIterator<Item = (usize, &'a Candidate)>) -> Spliced {
    let mut spliced = Spliced { text: String::with_capacity(text.len()), ranges: Vec::new() };
    let mut done = 0;
    for (id, fault) in faults {
        spliced.text.push_str(&text[done..fault.range.start]);
        let start = spliced.text.len();
        spliced.text.push_str(&guarded(id, fault));
        spliced.ranges.push(start..spliced.text.len());
        done = fault.range.end;
    }
    spliced.text.push_str(&text[done..]);
    spliced
}

fn guarded(id: usize, fault: &Candidate) -> String {
    let Candidate { before, after, .. } = fault;
    let on = format!("crate::mutant_switch::on({id})");
    match fault.form {
        Form::Expression => format!("(if {on} {{ ({after}) }} else {{ ({before}) }})"),
        Form::Condition => format!("({on} != ({before}))"),
        Form::Statement => format!("if !{on} {{ {before} }}"),
    }
}

/// The module that is added to the root of a crate. `on` is part of the emulator's innermost loops:
/// without a fault and without records it costs one relaxed load.
pub fn switch(count: usize) -> String {
    let (seen, active, reached) = (count + 1, ACTIVE, REACHED);
    format!(
        r#"
mod mutant_switch {{
    use std::sync::atomic::{{AtomicBool, AtomicU32, Ordering::Relaxed}};

    const UNREAD: u32 = u32::MAX;
    const RECORDING: u32 = u32::MAX - 1;
    static ACTIVE: AtomicU32 = AtomicU32::new(UNREAD);
    static SEEN: [AtomicBool; {seen}] = [const {{ AtomicBool::new(false) }}; {seen}];

    #[inline]
    pub fn on(id: u32) -> bool {{
        let active = ACTIVE.load(Relaxed);
        if active < RECORDING {{ active == id }} else {{ decide(id) }}
    }}

    #[cold]
    #[inline(never)]
    fn decide(id: u32) -> bool {{
        if ACTIVE.load(Relaxed) == UNREAD {{
            let recording = std::env::var_os("{reached}").is_some();
            let number = std::env::var("{active}").ok().and_then(|text| text.parse().ok());
            ACTIVE.store(if recording {{ RECORDING }} else {{ number.unwrap_or(0) }}, Relaxed);
            return on(id);
        }}
        if !SEEN[id as usize].load(Relaxed) && !SEEN[id as usize].swap(true, Relaxed) {{
            let folder = std::env::var_os("{reached}").unwrap_or_default();
            let _ = std::fs::File::create(std::path::Path::new(&folder).join(id.to_string()));
        }}
        false
    }}
}}
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::candidates::find;

    #[test]
    fn every_form_is_spliced() {
        let text = "fn f() { a(b < c); if d { é(e)?; } }";
        let mut faults = find(text).unwrap().candidates;
        faults.retain(|fault| fault.before != "a(b < c);");
        let spliced = splice(text, (7..).zip(&faults));
        assert_eq!(
            spliced.text,
            "fn f() { a((if crate::mutant_switch::on(7) { (b <= c) } else { (b < c) })); \
             if (crate::mutant_switch::on(8) != (d)) { \
             if !crate::mutant_switch::on(9) { é(e)?; } } }"
        );
        assert_eq!(
            &spliced.text[spliced.ranges[1].clone()],
            "(crate::mutant_switch::on(8) != (d))"
        );
        assert!(syn::parse_file(&spliced.text).is_ok());
    }

    #[test]
    fn the_switch_is_a_module() {
        let module = syn::parse_file(&switch(3)).unwrap();
        assert!(
            matches!(module.items.as_slice(), [syn::Item::Mod(module)] if module.ident == "mutant_switch")
        );
        assert!(find(&switch(3)).is_ok_and(|found| found.modules.is_empty()));
    }
}
