//! Every page on every screen, by day and by night. The pages are those that the navigation names, and one of each kind that they lead to.
//!
//! With `SYMPHONY_PICTURES` it leaves a picture of each in that folder: `scripts/screenshots`.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use symphony_proof::kit::wait::{self, BOUND};

use super::chromium::Chromium;
use super::stage::Stage;
use super::tab::{Screen, Tab};
use crate::http;

/// The links of a page, with what is around them first.
const LINKS: &str = "[...document.querySelectorAll('nav a, main a')].map(link => link.getAttribute('href'))";
/// Whether something sticks out to the right: of the window, and then by whom.
const STICKS_OUT: &str = "document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll('body *')]\
    .filter(one => one.getBoundingClientRect().right > innerWidth + 1).map(one => one.outerHTML.slice(0, 120))";
/// The text that stands out too little from what is behind it, by the rule of WCAG 2.2 AA for text of any size.
const TOO_PALE: &str = "(() => {
    const parts = colour => (colour.match(/[0-9.]+/g) ?? []).map(Number);
    const light = colour => parts(colour).slice(0, 3)
        .map(part => part / 255).map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
        .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
    const behind = one => {
        for (; one; one = one.parentElement) {
            const ground = getComputedStyle(one).backgroundColor;
            if (parts(ground)[3] !== 0) return ground;
        }
        return 'rgb(255, 255, 255)';
    };
    return [...document.querySelectorAll('body *')]
        .filter(one => one.getClientRects().length && [...one.childNodes].some(part => part.nodeType === 3 && part.data.trim()))
        .map(one => {
            const [ink, ground] = [light(getComputedStyle(one).color), light(behind(one))];
            const contrast = (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
            return contrast < 4.5 ? `${contrast.toFixed(2)}: ${one.outerHTML.slice(0, 120)}` : null;
        })
        .filter(found => found);
})()";
/// How high a picture is at most.
const HIGHEST: u64 = 1000;

/// The name of the kind of page that a path leads to: what identifies one of many is left out.
fn kind(path: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for (place, part) in path.trim_matches('/').split('/').enumerate() {
        words.push(if place == 1 { "one" } else { part });
    }
    let kind = words.join("-");
    if kind.is_empty() { "overview".to_owned() } else { kind }
}

/// The first path of each kind of page, from the overview on.
async fn pages(tab: &Tab<'_>) -> BTreeMap<String, String> {
    let mut known = BTreeMap::from([(kind("/"), "/".to_owned())]);
    let mut ahead = VecDeque::from(["/".to_owned()]);
    while let Some(path) = ahead.pop_front() {
        if !tab.visit(&path).await {
            known.remove(&kind(&path));
            continue;
        }
        for link in tab.eval(LINKS).await.as_array().unwrap().iter().filter_map(Value::as_str) {
            let link = link.split(['?', '#']).next().unwrap_or_default();
            if link.starts_with('/') && !known.contains_key(&kind(link)) {
                known.insert(kind(link), link.to_owned());
                ahead.push_back(link.to_owned());
            }
        }
    }
    known
}

/// Lets some outcomes stay unknown, so that the pages about them have something to show.
async fn furnish(stage: &Stage) {
    let policy =
        r#"{"policy": {"on_unknown": "STOP"}, "actor": "ana", "reason": "the bank cannot be asked today"}"#;
    let headers = [("content-type", "application/json")];
    http::ask(stage.dashboard, "POST", "/api/v1/rails/sepa/policy", &headers, policy).await.is(200);
    stage.faults(r#"{"cut_after": "0.3", "refuse": "0.1", "inquiry_down": "0.5"}"#).await;
    let letters = async |unknown: bool| {
        let path = format!("/api/v1/dead-letters?outcome_unknown={unknown}&limit=2");
        let page = http::ask(stage.dashboard, "GET", &path, &[], "").await.is(200).json();
        page["items"].as_array().is_some_and(|items| items.len() == 2)
    };
    let both = async || letters(true).await && letters(false).await;
    wait::until("there are dead letters of both kinds", BOUND, both).await.unwrap();
}

#[tokio::test]
async fn every_page_is_in_order_on_every_screen_by_day_and_by_night() {
    let pictures = std::env::var_os("SYMPHONY_PICTURES").map(PathBuf::from);
    let stage = Stage::set().await;
    furnish(&stage).await;
    let chromium = Chromium::start();
    let tab = Tab::open(&chromium, stage.dashboard).await;
    let pages = pages(&tab).await;
    for expected in ["overview", "dead-letters", "outboxes-one", "outboxes-one-payload", "rails", "events-one"] {
        assert!(pages.contains_key(expected), "{expected} is not among {pages:?}");
    }
    for (name, path) in &pages {
        let began = Instant::now();
        tab.goto(path).await;
        // A browser gives a site six connections, and takes one back from a page that was left after a minute.
        assert!(began.elapsed() < Duration::from_secs(30), "{name} waits for connections of pages that were left");
        for (screen, dark) in [Screen::Desk, Screen::Phone].into_iter().flat_map(|one| [(one, false), (one, true)])
        {
            tab.look(screen, dark).await;
            let words = format!("{name}, {screen:?}, {}", if dark { "dark" } else { "light" });
            assert_eq!(tab.eval(STICKS_OUT).await, Value::Array(Vec::new()), "{words}: too wide");
            assert_eq!(tab.eval(TOO_PALE).await, Value::Array(Vec::new()), "{words}: too pale");
            if let Some(folder) = &pictures {
                let file = format!("{}.png", words.replace(", ", "-").to_lowercase());
                std::fs::write(folder.join(file), tab.picture(screen, HIGHEST).await).unwrap();
            }
        }
    }
    tab.is_quiet();
}
