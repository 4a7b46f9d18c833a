//! The software bill of materials of a package, in the JSON form of CycloneDX 1.5: every crate that
//! is linked into its files, with licence, checksum and uses, and what the compilers add.

use serde_json::{Value, json};

use crate::inventory::{ARTIFACTS, CrateId, Inventory};
use crate::release::Release;
use crate::target::Target;
use crate::tools::ZIG;

/// The bill of materials.
pub fn sbom(release: &Release, target: Target, inventory: &Inventory) -> Value {
    let version = &release.version;
    let root = format!("pkg:generic/{}@{version}?arch={}", release.name(target), target.machine());
    let runtimes = [
        runtime("rust-std", &release.rust, "MIT OR Apache-2.0", "the standard library of Rust"),
        runtime(
            "libunwind, libc++ and compiler-rt of zig",
            ZIG,
            "Apache-2.0 WITH LLVM-exception",
            "the unwinder of all programs and the C++ library of the examples, built by zig",
        ),
    ];
    let mut components: Vec<Value> =
        inventory.crates.keys().map(|id| component(id, inventory)).collect();
    components.extend(runtimes);

    let artifacts = ARTIFACTS.iter().filter_map(|artifact| inventory.artifact(artifact));
    let mut dependencies = vec![json!({
        "ref": root,
        "dependsOn": artifacts.map(reference).collect::<Vec<_>>(),
    })];
    dependencies.extend(inventory.uses.iter().map(|(id, used)| {
        json!({ "ref": reference(id), "dependsOn": used.iter().map(reference).collect::<Vec<_>>() })
    }));
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": root,
                "name": release.name(target),
                "version": version,
                "licenses": [{ "expression": "MIT" }],
            },
            "properties": [
                { "name": "commit", "value": release.commit },
                { "name": "target", "value": target.triple() },
                { "name": "rustc", "value": release.rust },
                { "name": "zig", "value": ZIG },
            ],
        },
        "components": components,
        "dependencies": dependencies,
    })
}

fn reference(id: &CrateId) -> String {
    format!("pkg:cargo/{}@{}", id.name, id.version)
}

fn component(id: &CrateId, inventory: &Inventory) -> Value {
    let facts = &inventory.crates[id];
    let mut component = json!({
        "type": "library",
        "bom-ref": reference(id),
        "name": id.name,
        "version": id.version,
        "scope": "required",
    });
    if let Some(description) = &facts.description {
        component["description"] = json!(description.trim());
    }
    if let Some(licence) = &facts.licence {
        // Some crates still write `MIT/Apache-2.0`, which is no SPDX expression.
        component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
    }
    if let Some(artifact) = ARTIFACTS.iter().find(|artifact| artifact.package == id.name) {
        component["properties"] = json!([{ "name": "file", "value": artifact.name }]);
    }
    // Crates of this repository are in no registry.
    if let Some(sha256) = &facts.sha256 {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sha256 }]);
        component["purl"] = json!(reference(id));
    }
    component
}

fn runtime(name: &str, version: &str, licence: &str, description: &str) -> Value {
    json!({
        "type": "library",
        "bom-ref": format!("{name} {version}"),
        "name": name,
        "version": version,
        "description": description,
        "scope": "required",
        "licenses": [{ "expression": licence }],
    })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::inventory::CrateFacts;

    #[test]
    fn every_reference_is_a_component_and_crates_of_the_registry_have_checksums() {
        let id = |name: &str| CrateId { name: name.to_owned(), version: "0.1.0".to_owned() };
        let facts = |sha256: Option<&str>| CrateFacts {
            description: Some("About it.\n".to_owned()),
            licence: Some("MIT/Apache-2.0".to_owned()),
            sha256: sha256.map(str::to_owned),
            folder: "/nowhere".into(),
        };
        let (own, other) = (id("pgemm"), id("serde"));
        let inventory = Inventory {
            crates: BTreeMap::from([
                (own.clone(), facts(None)),
                (other.clone(), facts(Some("0f"))),
            ]),
            uses: BTreeMap::from([
                (own, BTreeSet::from([other.clone()])),
                (other, BTreeSet::new()),
            ]),
        };
        let sbom = sbom(&Release::example(), Target::X86_64, &inventory);

        let components = sbom["components"].as_array().unwrap();
        let mut known: Vec<&Value> = components.iter().map(|part| &part["bom-ref"]).collect();
        known.push(&sbom["metadata"]["component"]["bom-ref"]);
        let dependencies = sbom["dependencies"].as_array().unwrap();
        assert_eq!(dependencies.len(), 3);
        for dependency in dependencies {
            assert!(known.contains(&&dependency["ref"]), "{dependency}");
            for used in dependency["dependsOn"].as_array().unwrap() {
                assert!(known.contains(&used), "{used}");
            }
        }
        let serde = components.iter().find(|part| part["name"] == "serde").unwrap();
        assert_eq!(serde["purl"], "pkg:cargo/serde@0.1.0");
        assert_eq!(serde["hashes"][0]["content"], "0f");
        assert_eq!(serde["licenses"][0]["expression"], "MIT OR Apache-2.0");
        let pgemm = components.iter().find(|part| part["name"] == "pgemm").unwrap();
        assert_eq!(pgemm["properties"][0]["value"], "bin/pgemm");
        assert_eq!((pgemm.get("purl"), pgemm.get("hashes")), (None, None));
    }
}
