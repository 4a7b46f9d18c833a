//! A plan in one line, for people.

use std::fmt;

use super::Plan;
use crate::operands::{OperandAccess, OperandAccesses};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural =
            |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let workers = if self.spec.cluster.size() == 1 { "CTA" } else { "cluster" };
        let mut parts = vec![format!(
            "{} on {} ({:.2} waves)",
            plural(self.tiles, "tile"),
            plural(u64::from(self.clusters), workers),
            self.waves
        )];
        if self.split_tiles > 0 {
            let which = if u64::from(self.split_tiles) == self.tiles {
                "all".to_owned()
            } else {
                self.split_tiles.to_string()
            };
            let order = if self.unordered { ", unordered" } else { "" };
            let workers = plural(u64::from(self.workers), "worker");
            parts.push(format!("{which} split along k among {workers} ({}{order})", self.split));
        }
        let OperandAccesses { a, b } = self.accesses;
        for (operand, access) in [("A", a), ("B", b)] {
            if access != OperandAccess::InPlace {
                parts.push(format!("{operand} {access}"));
            }
        }
        if self.swapped() {
            parts.push("A and B swapped".to_owned());
        }
        parts.push(plural(u64::from(self.raster_rows), "raster row"));
        let launch = if self.dependent_launch { "dependent" } else { "serial" };
        parts.push(format!("{launch} launch"));
        parts.push(self.why.clone());
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use pgemm_ir::Element;

    use crate::{Config, Major, Plan, Problem, Split};

    #[test]
    fn plans_say_what_is_split_and_swapped() {
        let problem = Problem::new(16, 1024, 4096, Major::K, Major::K);
        let config = Config {
            split: Some(Split::StreamK),
            raster_rows: Some(1),
            ..Config::for_spec("bf16-kkm-bf16-64x16x64-s16-w1-c1x1".parse().unwrap())
        };
        let plan = Plan::candidates(&problem, &config, 132).unwrap().remove(0);
        assert_eq!(
            plan.to_string(),
            "16 tiles on 132 CTAs (0.12 waves), all split along k among 132 workers (stream-k), A \
             and B swapped, 1 raster row, dependent launch, as asked"
        );
        let whole = Config { split: Some(Split::Whole), ..config };
        let plan = Plan::candidates(&problem, &whole, 132).unwrap().remove(0);
        assert!(!plan.to_string().contains("split"), "{plan}");
    }

    #[test]
    fn plans_say_what_became_of_a_macro_tile() {
        let requested = Config {
            tile_m: Some(256),
            tile_n: Some(256),
            tile_k: Some(32),
            ..Config::new(Element::F32)
        };
        for b_major in [Major::K, Major::N] {
            let problem = Problem::new(4096, 4096, 4096, Major::K, b_major);
            let plan = Plan::candidates(&problem, &requested, 132).unwrap().remove(0);
            let tile = plan.spec.tile;
            assert_eq!((tile.m, tile.n, tile.k), (128, 256, 32), "{plan}");
            assert!(
                plan.to_string().contains("macro-tile 256x256 as 2x1 CTA tiles of 128x256"),
                "{plan}"
            );
        }
    }
}
