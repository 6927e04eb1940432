//! A corpus of difficult texts: each `<name>.txt` of the folder `corpus` must clean to `<name>.kept`.

use std::fs;
use std::path::{Path, PathBuf};

use super::{cleaned_twice, database, is_sound};

fn inputs() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/error_text/corpus");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut inputs: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "txt")).collect();
    inputs.sort();
    inputs
}

#[tokio::test]
async fn every_text_of_the_corpus_cleans_to_its_kept_file() {
    let (_database, client) = database().await;
    let inputs = inputs();
    assert!(inputs.len() >= 20, "a corpus without texts tries nothing");
    let read = |path: &PathBuf| fs::read_to_string(path).ok();
    let texts: Vec<String> = inputs.iter().map(|path| read(path).unwrap()).collect();
    let mut wrong = Vec::new();
    for (path, (kept, again)) in inputs.iter().zip(cleaned_twice(&client, &texts).await) {
        let name = path.file_stem().unwrap().to_string_lossy();
        if let Err(why) = is_sound(kept.as_deref(), again.as_deref()) {
            wrong.push(format!("{name}: {why}"));
        }
        let expected = read(&path.with_extension("kept")).unwrap_or_default();
        let kept = kept.unwrap_or_default();
        if kept != expected.trim_end_matches('\n') {
            wrong.push(format!("{name}: kept is\n{kept}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
