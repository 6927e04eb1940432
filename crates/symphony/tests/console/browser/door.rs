//! Who is let in, with a keyboard alone: tokens are asked for, scopes are kept, and every action is within reach of the Tab key.

use super::chromium::Chromium;
use super::tab::Tab;
use crate::office::Office;

/// What has the focus, and whether that can be seen.
const FOCUSED: &str = "(() => { const one = document.activeElement, style = getComputedStyle(one); \
    return { words: (one.innerText || one.name || one.tagName).trim(), \
             seen: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2 && one.getClientRects().length > 0 }; })()";
/// More than any page has to stop at.
const STOPS: usize = 200;

/// Presses Tab until this has the focus. Wherever it is on the way, that can be seen.
async fn tab_to(tab: &Tab<'_>, words: &str) -> Vec<String> {
    let mut way = Vec::new();
    while way.len() < STOPS {
        tab.press("Tab").await;
        let focused = tab.eval(FOCUSED).await;
        let name = focused["words"].as_str().unwrap().to_owned();
        assert!(
            focused["seen"] == true || name == "BODY",
            "nobody sees that {name:?} has the focus, after {way:?}"
        );
        way.push(name);
        if way.last().is_some_and(|name| name == words) {
            return way;
        }
    }
    panic!("{words:?} is out of reach: {way:?}");
}

/// Signs in where the field already has the focus.
async fn sign_in(tab: &Tab<'_>, token: &str) {
    tab.type_text(token).await;
    tab.leave_by(async || tab.press("Enter").await).await;
}

#[tokio::test]
async fn without_a_token_nobody_is_let_in_and_with_one_as_far_as_it_goes() {
    let office = Office::open().await;
    office.failed(1).await;
    let console = office.console(&[("reader", &["read"]), ("duty", &["operate"])]).await;
    let chromium = Chromium::start();
    let tab = Tab::open(&chromium, console.address).await;
    for path in ["/", "/rails", "/dead-letters"] {
        tab.goto(path).await;
        assert_eq!(tab.eval("location.pathname").await, "/login", "{path}");
        assert_eq!(tab.text("nav").await, "");
    }
    let api = "fetch('/api/v1/outboxes').then(answer => answer.status)";
    assert_eq!(tab.eval(api).await, 401);
    sign_in(&tab, "sym_wrong").await;
    assert!(tab.text("[role=alert]").await.contains("not a token that is known"));

    sign_in(&tab, console.token("reader")).await;
    assert_eq!(tab.text("h1").await, "Dead letters", "one is led to where one wanted to go");
    assert!(!tab.text("nav").await.contains("Operations"));
    tab.goto("/rails").await;
    assert_eq!(tab.eval("document.querySelectorAll('main form').length").await, 0, "there is nothing to do");
    tab.goto("/operations").await;
    assert!(tab.text("main").await.contains("no scope"));
    // The cookie of a session opens pages and nothing of the API.
    assert_eq!(tab.eval(api).await, 401);
    tab.follow(".who button").await;
    tab.goto("/rails").await;
    assert_eq!(tab.eval("location.pathname").await, "/login");
}

#[tokio::test]
async fn a_keyboard_is_enough() {
    let office = Office::open().await;
    let console = office.console(&[("duty", &["operate"])]).await;
    let chromium = Chromium::start();
    let tab = Tab::open(&chromium, console.address).await;
    tab.goto("/rails").await;
    sign_in(&tab, console.token("duty")).await;
    let way = tab_to(&tab, "Pause, repair or retire").await;
    assert_eq!(way[0], "Skip to the content");
    tab.press("Enter").await;
    for (field, text) in [("actor", "ana"), ("reason", "a test")] {
        tab_to(&tab, field).await;
        tab.type_text(text).await;
    }
    tab_to(&tab, "Pause sepa").await;
    tab.leave_by(async || tab.press("Enter").await).await;
    assert!(tab.text("main").await.contains("PAUSED"));
    assert_eq!(office.operations("PAUSE_RAIL").await, 1);
    tab.is_quiet();
}
