//! A change of the faults at run time: the body of PUT /v1/faults.
//!
//! Settings that it does not name keep their value. It is applied completely or not at all.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde_json::value::RawValue;

use super::{
    fault::Fault,
    payment::MAX_NAME_BYTES,
    settings::{self, Faults},
};

/// The most keys with their own faults.
const MAX_KEYS: usize = 10_000;
/// The most faults of one key.
const MAX_FAULTS_PER_KEY: usize = 1_000;

/// Why a change was refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// Write an object: names of faults with texts or numbers, preset, for_key.
    #[error("the body is not a JSON object of fault settings, preset and for_key")]
    Malformed,
    /// Look up the fault, or its value.
    #[error(transparent)]
    Setting(#[from] settings::Error),
    /// Look up the fault.
    #[error("for_key needs lists of these faults: {}", Fault::NAMES.map(|(_, name)| name).join(", "))]
    UnknownFault,
    /// Name fewer keys, or wait until the lists are used up.
    #[error(
        "for_key takes at most {MAX_KEYS} keys of 1 to {MAX_NAME_BYTES} bytes, with at most {MAX_FAULTS_PER_KEY} faults each"
    )]
    TooMany,
}

/// A parsed change.
#[derive(Debug)]
pub(super) struct FaultChange {
    preset: Option<String>,
    settings: Vec<(String, String)>,
    lists: BTreeMap<String, VecDeque<Fault>>,
}

impl FaultChange {
    /// Parses a body.
    pub(super) fn read(body: &[u8]) -> Result<Self, Error> {
        let members: BTreeMap<String, &RawValue> = serde_json::from_slice(body).map_err(|_| Error::Malformed)?;
        let mut change = Self { preset: None, settings: Vec::new(), lists: BTreeMap::new() };
        for (name, value) in members {
            match name.as_str() {
                "preset" => change.preset = Some(text(value)?),
                "for_key" => change.lists = lists(value)?,
                _ => change.settings.push((name, text(value)?)),
            }
        }
        Ok(change)
    }

    /// Applies the change. A preset first removes all faults, those for single keys too; the seed stays.
    pub(super) fn apply(
        self,
        faults: &mut Faults,
        scripted: &mut HashMap<String, VecDeque<Fault>>,
    ) -> Result<(), Error> {
        let base = match &self.preset {
            Some(name) => Faults::preset(name, faults.seed)?,
            None => faults.clone(),
        };
        let changed = base.changed(self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())))?;
        let kept = if self.preset.is_some() { 0 } else { scripted.len() };
        if kept + self.lists.len() > MAX_KEYS {
            return Err(Error::TooMany);
        }
        *faults = changed;
        if self.preset.is_some() {
            scripted.clear();
        }
        for (key, list) in self.lists {
            if list.is_empty() {
                scripted.remove(&key);
            } else {
                scripted.insert(key, list);
            }
        }
        Ok(())
    }
}

/// A text, or the text of a number: a probability must not become a float.
fn text(value: &RawValue) -> Result<String, Error> {
    let raw = value.get();
    match raw.bytes().next() {
        Some(b'"') => serde_json::from_str(raw).map_err(|_| Error::Malformed),
        Some(b'0'..=b'9') => Ok(raw.to_owned()),
        Some(b'n') => Ok("off".to_owned()),
        _ => Err(Error::Malformed),
    }
}

fn lists(value: &RawValue) -> Result<BTreeMap<String, VecDeque<Fault>>, Error> {
    let written: BTreeMap<String, Vec<String>> =
        serde_json::from_str(value.get()).map_err(|_| Error::UnknownFault)?;
    let mut lists = BTreeMap::new();
    for (key, names) in written {
        if key.is_empty() || key.len() > MAX_NAME_BYTES || names.len() > MAX_FAULTS_PER_KEY {
            return Err(Error::TooMany);
        }
        let list: Option<_> = names.iter().map(|name| Fault::named(name)).collect();
        lists.insert(key, list.ok_or(Error::UnknownFault)?);
    }
    Ok(lists)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(
        body: &str,
        faults: &mut Faults,
        scripted: &mut HashMap<String, VecDeque<Fault>>,
    ) -> Result<(), Error> {
        FaultChange::read(body.as_bytes())?.apply(faults, scripted)
    }

    #[test]
    fn settings_that_are_not_named_stay_and_a_preset_resets_the_others() {
        let (mut faults, mut scripted) = (Faults::default(), HashMap::new());
        let body = r#"{"cut_after":0.25,"seed":3,"for_key":{"A":["timeout_after","ok"],"B":["busy"]}}"#;
        apply(body, &mut faults, &mut scripted).unwrap();
        apply(r#"{"busy":"0.5","for_key":{"B":[]}}"#, &mut faults, &mut scripted).unwrap();
        assert_eq!(faults.chance(Fault::CutAfter).to_string(), "0.25");
        assert_eq!(faults.chance(Fault::Busy).to_string(), "0.5");
        assert_eq!(scripted.keys().collect::<Vec<_>>(), ["A"]);
        apply(r#"{"preset":"none","cut_before":"0.1"}"#, &mut faults, &mut scripted).unwrap();
        assert_eq!(faults.chance(Fault::CutAfter).millionths(), 0);
        assert_eq!(faults.chance(Fault::CutBefore).to_string(), "0.1");
        assert!(faults.seed == 3 && scripted.is_empty());
    }

    #[test]
    fn an_invalid_change_is_not_applied_at_all() {
        let (mut faults, mut scripted) = (Faults::default(), HashMap::new());
        for wrong in [
            "[]",
            r#"{"cut_after":true}"#,
            r#"{"cut_after":"0.5","meteor":"1"}"#,
            r#"{"cut_after":"0.5","for_key":{"A":["meteor"]}}"#,
            r#"{"cut_after":"0.5","for_key":{"":["ok"]}}"#,
            r#"{"cut_after":"0.5","preset":"all"}"#,
            r#"{"cut_after":"0.5","busy":0.6}"#,
        ] {
            assert!(apply(wrong, &mut faults, &mut scripted).is_err(), "{wrong}");
            assert!(faults == Faults::default() && scripted.is_empty(), "{wrong}");
        }
    }
}
