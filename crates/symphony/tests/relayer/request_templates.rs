//! A rail whose body comes from a template: what fits is sent as the template says, what does not is never sent.

use serde_json::json;
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};

use crate::harness::{Harness, RAIL};
use crate::producers::instruction;
use crate::recording_server::RecordingServer;

#[tokio::test]
async fn a_payload_that_does_not_fit_the_template_ends_as_invalid_and_is_never_sent() {
    let harness = Harness::start().await;
    let bank = RecordingServer::start().await;
    let sample = harness.folder.path().join("sample.json");
    std::fs::write(&sample, r#"{"amount": "1.00", "currency": "EUR", "name": "Acme"}"#).unwrap();
    let mut settings = harness.settings().rail_lines(&format!(
        "sample_file = '{}'\nbody = {{ template = '<Pay><Nm>{{{{ payload.name }}}}</Nm></Pay>', format = 'xml' }}",
        sample.display()
    ));
    for section in settings.rails.values_mut() {
        *section = section.replace(&harness.bank.address().to_string(), &bank.address().to_string());
    }
    let mut producer = harness.producer();
    let mut wrong = instruction("wrong", 0, RAIL);
    wrong.payload = json!({ "amount": "3.00", "currency": "EUR" }).into();
    producer.enqueue(&wrong).await;
    let mut fits = instruction("fits", 0, RAIL);
    fits.payload = json!({ "amount": "3.00", "currency": "EUR", "name": "</Nm><Nm>A & B" }).into();
    producer.enqueue(&fits).await;

    let relayer = harness.start_relayer(&settings).await;
    let ended = "select count(*) from symphony.payment_outbox_attempts where state in ('DISPATCHED', 'FAILED')";
    let condition = async || harness.query_number(ended).await == 2;
    until("both payments have ended", DEFAULT_TIMEOUT, condition).await.unwrap();
    let invalid = "select count(*) from symphony.payment_outbox_attempts
                   where state = 'FAILED' and error_code = 'INVALID_PAYLOAD' and attempt_no = 1
                     and error_message like '%body.template: line 1: it names a field%'";
    assert_eq!(harness.query_number(invalid).await, 1);
    let requests = bank.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].header("content-type"), "application/xml");
    assert_eq!(requests[0].body, "<Pay><Nm>&lt;/Nm&gt;&lt;Nm&gt;A &amp; B</Nm></Pay>");
    relayer.stop().await;
}
