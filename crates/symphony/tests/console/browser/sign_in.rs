//! Sign-in with a keyboard alone: pages need a token, scopes apply, and Tab reaches every action.

use super::chromium::Chromium;
use super::tab::Tab;
use crate::fixture::Fixture;

/// The focused element, and whether its focus outline is visible.
const FOCUSED: &str = "(() => { const one = document.activeElement, style = getComputedStyle(one); \
    return { words: (one.innerText || one.name || one.tagName).trim(), \
             seen: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2 && one.getClientRects().length > 0 }; })()";
/// More than the focusable elements of any page.
const MAX_TABS: usize = 200;

/// Presses Tab until the element with this text has the focus. Every focus on the way must be visible.
async fn tab_to(tab: &Tab<'_>, words: &str) -> Vec<String> {
    let mut way = Vec::new();
    while way.len() < MAX_TABS {
        tab.press("Tab").await;
        let focused = tab.eval(FOCUSED).await;
        let name = focused["words"].as_str().unwrap().to_owned();
        assert!(focused["seen"] == true || name == "BODY", "the focus on {name:?} is not visible, after {way:?}");
        way.push(name);
        if way.last().is_some_and(|name| name == words) {
            return way;
        }
    }
    panic!("{words:?} cannot be reached with Tab: {way:?}");
}

/// Signs in. The page gives the focus to the token field, which happens a moment after it has loaded.
async fn sign_in(tab: &Tab<'_>, token: &str) {
    tab.until("the token field has the focus", "document.activeElement?.name === 'token'").await;
    tab.type_text(token).await;
    tab.leave_by(async || tab.press("Enter").await).await;
}

#[tokio::test]
async fn pages_need_a_token_and_its_scopes_apply() {
    let fixture = Fixture::new().await;
    fixture.failed(1).await;
    let console = fixture.console(&[("reader", &["read"]), ("duty", &["operate"])]).await;
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
    assert!(tab.text("[role=alert]").await.contains("Unknown token"));

    sign_in(&tab, console.token("reader")).await;
    assert_eq!(tab.text("h1").await, "Dead-letter queue", "sign-in returns to the requested page");
    assert!(!tab.text("nav").await.contains("Audit log"));
    tab.goto("/rails").await;
    assert_eq!(tab.eval("document.querySelectorAll('main form').length").await, 0, "the scope read has no forms");
    tab.goto("/operations").await;
    assert!(tab.text("main").await.contains("no scope"));
    // A session cookie is valid for pages and not for the API.
    assert_eq!(tab.eval(api).await, 401);
    tab.follow(".user button").await;
    tab.goto("/rails").await;
    assert_eq!(tab.eval("location.pathname").await, "/login");
}

#[tokio::test]
async fn an_action_needs_no_mouse() {
    let fixture = Fixture::new().await;
    let console = fixture.console(&[("duty", &["operate"])]).await;
    let chromium = Chromium::start();
    let tab = Tab::open(&chromium, console.address).await;
    tab.goto("/rails").await;
    sign_in(&tab, console.token("duty")).await;
    let way = tab_to(&tab, "Pause, repair or retire").await;
    assert_eq!(way[0], "Skip to content");
    tab.press("Enter").await;
    for (field, text) in [("actor", "ana"), ("reason", "a test")] {
        tab_to(&tab, field).await;
        tab.type_text(text).await;
    }
    tab_to(&tab, "Pause sepa").await;
    tab.leave_by(async || tab.press("Enter").await).await;
    assert!(tab.text("main").await.contains("PAUSED"));
    assert_eq!(fixture.operations("PAUSE_RAIL").await, 1);
    tab.is_quiet();
}
