//! docs/guarantees.md names every proof, and for each guarantee the tests that prove it.

use std::{fs, ops::RangeInclusive};

use crate::{files, is_rust, none, root};

/// The sections of the guarantees, each with the names of tests and proofs under its "How it is proven".
fn guarantees(text: &str) -> Vec<(&str, Vec<&str>)> {
    let sections = text.split("\n### ").skip(1).map(|section| section.split("\n## ").next().unwrap());
    sections
        .map(|section| {
            let proven = section.split_once("**How it is proven**:").unwrap_or(("", "")).1;
            let is_test = |word: &&str| {
                word.matches('_').count() > 2
                    && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            };
            (section, proven.split('`').skip(1).step_by(2).filter(is_test).collect())
        })
        .collect()
}

#[test]
fn the_guarantees_name_every_proof_and_no_other() {
    // Guarantees of the relayer process, proven by the tests of crates/symphony and not by the library.
    const PROCESSES: RangeInclusive<u8> = 26..=29;
    let text = fs::read_to_string(root().join("docs/guarantees.md")).unwrap();
    let proofs: Vec<_> = symphony_proof::all().iter().map(|proof| (proof.number, proof.name)).collect();
    let numbered: Vec<_> = guarantees(&text)
        .iter()
        .filter_map(|(section, names)| Some((section.split_once('.')?.0.parse::<u8>().ok()?, *names.first()?)))
        .filter(|(number, _)| !PROCESSES.contains(number))
        .collect();
    assert_eq!(numbered, proofs);
}

#[test]
fn every_guarantee_has_its_three_parts_and_names_tests_that_exist() {
    let text = fs::read_to_string(root().join("docs/guarantees.md")).unwrap();
    let code: String = files(is_rust).into_iter().map(|file| file.text).collect();
    let mut places = Vec::new();
    for (section, names) in guarantees(&text) {
        let title = section.lines().next().unwrap();
        for part in ["**What we promise**:", "**What it means for you**:", "**How it is proven**:"] {
            if !section.contains(part) {
                places.push(format!("{title}: no {part}"));
            }
        }
        for name in names {
            if symphony_proof::named(name).is_none() && !code.contains(&format!("fn {name}(")) {
                places.push(format!("{title}: there is no test {name}"));
            }
        }
    }
    none("guarantees that are incomplete", &places);
}
