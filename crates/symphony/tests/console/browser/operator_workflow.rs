//! An operator with a mouse: watches numbers, follows a payment, pauses a rail, resolves and redrives a dead letter.

use super::chromium::Chromium;
use super::demo::Demo;
use super::tab::Tab;

/// A number in the row of the rail sepa on the overview.
fn of_sepa(label: &str) -> String {
    format!(
        "Number([...document.querySelectorAll('#overview td[data-label=\"{label}\"]')]\
         .find(cell => cell.closest('tr').querySelector('th').innerText.includes('sepa')).innerText.replace(/[^0-9]/g, ''))"
    )
}

/// Opens the form of an action on the rails page.
async fn open_form(tab: &Tab<'_>, action: &str) -> String {
    tab.goto("/rails").await;
    let form = format!("form[action=\"/rails/sepa/{action}\"]");
    let mark = format!("document.querySelector({form:?}).closest('details').id = 'opened'");
    tab.eval(&mark).await;
    tab.click("#opened > summary").await;
    form
}

/// Fills in operator and reason, and submits the form.
async fn fill_and_submit(tab: &Tab<'_>, form: &str, why: &str) {
    tab.fill(&format!("{form} [name=actor]"), "ana").await;
    tab.fill(&format!("{form} [name=reason]"), why).await;
    tab.follow(&format!("{form} button")).await;
}

async fn pause_or_resume(tab: &Tab<'_>, action: &str, then: &str) {
    let form = open_form(tab, action).await;
    fill_and_submit(tab, &form, "a drill").await;
    let says = "[...document.querySelectorAll('h2')].find(title => title.innerText.startsWith('sepa')).innerText";
    let says = tab.eval(says).await;
    assert!(says.as_str().unwrap().contains(then), "{says}");
}

async fn set_on_unknown(tab: &Tab<'_>, word: &str) {
    let form = open_form(tab, "policy").await;
    tab.choose(&format!("{form} [name=on_unknown]"), word).await;
    tab.fill(&format!("{form} [name=confirm]"), "sepa").await;
    fill_and_submit(tab, &form, "a drill").await;
}

/// The script updates the page without a reload.
async fn numbers_move(tab: &Tab<'_>) {
    tab.goto("/").await;
    let dispatched = of_sepa("Dispatched");
    let first = tab.eval(&dispatched).await;
    tab.eval("window.stayed = true").await;
    tab.until("more is dispatched", &format!("{dispatched} > {first}")).await;
    assert_eq!(tab.eval("window.stayed").await, true, "the page was loaded again");
    assert_eq!(tab.text("#liveness").await, "Live.");
}

async fn a_payment_has_a_timeline(tab: &Tab<'_>) {
    tab.goto("/search?state=DISPATCHED&rail_type=sepa").await;
    tab.follow("tbody a[href^=\"/outboxes/\"]").await;
    let timeline = tab.text(".timeline").await;
    let places: Vec<_> = ["Enqueued", "claimed by relayer-", ": dispatched"]
        .map(|words| timeline.find(words))
        .into_iter()
        .collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{timeline}");
    let ordered = "[...document.querySelectorAll('.timeline time')].map(time => time.dateTime)\
                   .every((time, at, all) => at === 0 || all[at - 1] <= time)";
    assert_eq!(tab.eval(ordered).await, true, "{timeline}");
    assert!(tab.text(".notice").await.contains("DISPATCHED"));
    tab.follow(".facts a[href^=\"/participants/\"]").await;
    assert!(tab.text("main").await.contains("merchant-"));
}

async fn a_paused_rail_stops(tab: &Tab<'_>) {
    pause_or_resume(tab, "pause", "PAUSED").await;
    tab.goto("/").await;
    assert!(tab.text("#overview").await.contains("PAUSED"));
    tab.until("no lease is held", &format!("{} === 0", of_sepa("Leased"))).await;
    let [done, due] = [of_sepa("Dispatched"), of_sepa("Due")];
    let (dispatched, waiting) = (tab.eval(&done).await, tab.eval(&due).await);
    tab.until("more is due", &format!("{due} >= {waiting} + 10")).await;
    assert_eq!(tab.eval(&done).await, dispatched, "a paused rail dispatches");
    pause_or_resume(tab, "resume", "RUNNING").await;
    tab.goto("/").await;
    tab.until("it dispatches again", &format!("{done} > {dispatched}")).await;
}

/// An unknown outcome is first resolved, then redriven.
async fn a_dead_letter_is_resolved_and_redriven(tab: &Tab<'_>, demo: &Demo) {
    set_on_unknown(tab, "STOP").await;
    demo.faults(r#"{"cut_after": "0.5", "inquiry_down": "1"}"#).await;
    tab.goto("/dead-letters").await;
    let letter = "#unknown tbody a[href^=\"/outboxes/\"]";
    tab.until("there is a dead letter", &format!("document.querySelector({letter:?}) !== null")).await;
    demo.faults(r#"{"preset": "none"}"#).await;
    set_on_unknown(tab, "INQUIRE").await;

    tab.goto("/dead-letters").await;
    tab.follow(letter).await;
    let path = tab.eval("location.pathname").await.as_str().unwrap().to_owned();
    let id = path.rsplit('/').next().unwrap().to_owned();
    let resolve = format!("form[action=\"{path}/resolve\"]");
    assert_eq!(
        tab.eval(&format!("document.querySelector('form[action=\"{path}/redrive\"]')")).await,
        serde_json::Value::Null
    );
    // A wrong id is refused and changes nothing.
    for confirm in ["another", id.as_str()] {
        tab.goto(&path).await;
        tab.click(&format!("{resolve} [value=NOT_PAID]")).await;
        tab.fill(&format!("{resolve} [name=confirm]"), confirm).await;
        fill_and_submit(tab, &resolve, "statement of 3 May").await;
        let done = tab.text("main").await.contains("Resolved as NOT_PAID");
        assert_eq!(done, confirm == id, "{}", tab.text("main").await);
    }
    let redrive = format!("form[action=\"{path}/redrive\"]");
    tab.fill(&format!("{redrive} [name=confirm]"), &id).await;
    fill_and_submit(tab, &redrive, "the account is open again").await;
    assert_ne!(tab.eval("location.pathname").await, path.as_str(), "it continues as another outbox");
    tab.until("it is paid", "document.querySelector('.notice').innerText.includes('DISPATCHED')").await;
    assert!(tab.text(".facts").await.contains(&id), "it names the outbox that it redrives");

    tab.goto("/operations").await;
    let log = tab.text("main").await;
    for words in ["ana", "a drill", "statement of 3 May", "the account is open again"] {
        assert!(log.contains(words), "{words} is missing in {log}");
    }
}

#[tokio::test]
async fn an_operator_watches_acts_and_is_recorded_in_the_audit_log() {
    let demo = Demo::start().await;
    let chromium = Chromium::start();
    let tab = Tab::open(&chromium, demo.dashboard).await;
    numbers_move(&tab).await;
    a_payment_has_a_timeline(&tab).await;
    a_paused_rail_stops(&tab).await;
    a_dead_letter_is_resolved_and_redriven(&tab, &demo).await;
    // The provoked refusal is the only error in the browser.
    let complaints = tab.complaints();
    assert!(
        complaints.iter().all(|words| words.contains("status of 400")) && complaints.len() <= 1,
        "{complaints:#?}"
    );

    let plain = Tab::open(&chromium, demo.dashboard).await;
    plain.without_scripts().await;
    plain.goto("/").await;
    let first = plain.eval(&of_sepa("Dispatched")).await;
    assert_eq!(plain.text("#liveness").await, "", "a script ran");
    a_payment_has_a_timeline(&plain).await;
    pause_or_resume(&plain, "pause", "PAUSED").await;
    pause_or_resume(&plain, "resume", "RUNNING").await;
    plain.follow("nav a[href=\"/\"]").await;
    assert!(plain.eval(&of_sepa("Dispatched")).await.as_u64() >= first.as_u64());
    plain.is_quiet();
    demo.audit().await;
}
