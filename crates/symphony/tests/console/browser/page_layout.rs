//! Every page on every screen, light and dark: the pages of the navigation, and one of each kind that they link to.
//!
//! With `SYMPHONY_SCREENSHOTS` it writes the screenshots of the documentation into that folder: `scripts/screenshots`.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use symphony_testkit::wait::{self, DEFAULT_TIMEOUT};

use super::chromium::Chromium;
use super::demo::Demo;
use super::tab::{Screen, Tab};
use crate::http;

/// The links of a page, the navigation first.
const LINKS: &str = "[...document.querySelectorAll('nav a, main a')].map(link => link.getAttribute('href'))";
/// The elements that overflow the window to the right.
const OVERFLOWING: &str = "document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll('body *')]\
    .filter(one => one.getBoundingClientRect().right > innerWidth + 1).map(one => one.outerHTML.slice(0, 120))";
/// The elements with too little contrast, by WCAG 2.2 AA for text of any size.
const LOW_CONTRAST: &str = "(() => {
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
/// The largest height of a screenshot, in pixels.
const MAX_HEIGHT: u64 = 1000;
/// The screenshots in docs/console/: file name, page, screen, and whether it is dark.
const SCREENSHOTS: [(&str, &str, Screen, bool); 8] = [
    ("overview-light", "overview", Screen::Desktop, false),
    ("overview-dark", "overview", Screen::Desktop, true),
    ("overview-mobile", "overview", Screen::Phone, false),
    ("payments", "search", Screen::Desktop, false),
    ("payment", "outboxes-one", Screen::Desktop, false),
    ("dead-letters", "dead-letters", Screen::Desktop, false),
    ("rails", "rails", Screen::Desktop, false),
    ("audit-log", "operations", Screen::Desktop, false),
];

/// The kind of a page, from its path without ids.
fn kind(path: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for (index, part) in path.trim_matches('/').split('/').enumerate() {
        words.push(if index == 1 { "one" } else { part });
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

/// Waits for dead letters with known and unknown outcomes.
async fn add_dead_letters(demo: &Demo) {
    let policy =
        r#"{"policy": {"on_unknown": "STOP"}, "actor": "ana", "reason": "the bank cannot be asked today"}"#;
    let headers = [("content-type", "application/json")];
    http::ask(demo.dashboard, "POST", "/api/v1/rails/sepa/policy", &headers, policy).await.is(200);
    demo.faults(r#"{"cut_after": "0.3", "refuse": "0.1", "inquiry_down": "0.5"}"#).await;
    let letters = async |unknown: bool| {
        let path = format!("/api/v1/dead-letters?outcome_unknown={unknown}&limit=2");
        let page = http::ask(demo.dashboard, "GET", &path, &[], "").await.is(200).json();
        page["items"].as_array().is_some_and(|items| items.len() == 2)
    };
    let both = async || letters(true).await && letters(false).await;
    wait::until("there are dead letters of both kinds", DEFAULT_TIMEOUT, both).await.unwrap();
}

/// Waits until the chart of the overview has ten bars of 30 s each, with few failures.
async fn fill_chart(demo: &Demo, tab: &Tab<'_>) {
    demo.faults(r#"{"cut_after": "0.02", "refuse": "0.01"}"#).await;
    tab.goto("/").await;
    let filled = async || tab.eval("document.querySelectorAll('svg.chart rect.ok').length >= 10").await == true;
    wait::until("the chart has ten bars", 10 * DEFAULT_TIMEOUT, filled).await.unwrap();
}

#[tokio::test]
async fn every_page_fits_every_screen_in_light_and_dark() {
    let screenshots = std::env::var_os("SYMPHONY_SCREENSHOTS").map(PathBuf::from);
    let demo = Demo::start().await;
    add_dead_letters(&demo).await;
    let chromium = Chromium::start();
    let tab = Tab::open(&chromium, demo.dashboard).await;
    if screenshots.is_some() {
        fill_chart(&demo, &tab).await;
    }
    let pages = pages(&tab).await;
    let expected = ["outboxes-one-payload", "events-one"].into_iter().chain(SCREENSHOTS.map(|(_, page, ..)| page));
    for expected in expected {
        assert!(pages.contains_key(expected), "{expected} is not among {pages:?}");
    }
    for (name, path) in &pages {
        let began = Instant::now();
        tab.goto(path).await;
        // A browser opens six connections per site, and closes that of a cached page after a minute.
        assert!(began.elapsed() < Duration::from_secs(30), "{name} waits for the connections of cached pages");
        for (screen, dark) in
            [Screen::Desktop, Screen::Phone].into_iter().flat_map(|one| [(one, false), (one, true)])
        {
            tab.look(screen, dark).await;
            let words = format!("{name}, {screen:?}, {}", if dark { "dark" } else { "light" });
            assert_eq!(tab.eval(OVERFLOWING).await, Value::Array(Vec::new()), "{words}: too wide");
            assert_eq!(tab.eval(LOW_CONTRAST).await, Value::Array(Vec::new()), "{words}: too little contrast");
            let wanted =
                SCREENSHOTS.iter().find(|(_, page, on, is_dark)| (*page, *on, *is_dark) == (name, screen, dark));
            if let (Some(folder), Some((file, ..))) = (&screenshots, wanted) {
                std::fs::write(folder.join(format!("{file}.png")), tab.picture(screen, MAX_HEIGHT).await).unwrap();
            }
        }
    }
    tab.is_quiet();
}
