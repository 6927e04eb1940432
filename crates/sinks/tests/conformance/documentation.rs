//! The pages in docs/sinks list every setting, and their examples are valid.

const SINK_PAGES: [(&str, &str, &str); 4] = [
    ("nats", include_str!("../../../../docs/sinks/nats.md"), "url = 'tls://b'"),
    ("redis", include_str!("../../../../docs/sinks/redis.md"), "url = 'rediss://b'"),
    ("rabbitmq", include_str!("../../../../docs/sinks/rabbitmq.md"), "url = 'amqps://b'\nexchange = 'e'"),
    ("http", include_str!("../../../../docs/sinks/cloudevents.md"), "url = 'https://b.example/'"),
];
#[cfg(feature = "kafka")]
const KAFKA_PAGE: (&str, &str, &str) =
    ("kafka", include_str!("../../../../docs/sinks/kafka.md"), "brokers = ['b:9092']\nallow_plain = true");

fn sink_pages() -> Vec<(&'static str, &'static str, &'static str)> {
    #[cfg(feature = "kafka")]
    let more = [KAFKA_PAGE];
    #[cfg(not(feature = "kafka"))]
    let more = [];
    SINK_PAGES.into_iter().chain(more).collect()
}

const STORE_PAGES: [(&str, &str, &str); 3] = [
    ("postgres", include_str!("../../../../docs/sinks/metadata-postgres.md"), "url = 'host=/run'"),
    ("redis", include_str!("../../../../docs/sinks/metadata-redis.md"), "url = 'rediss://b'"),
    ("http", include_str!("../../../../docs/sinks/metadata-http.md"), "url = 'https://b.example/'"),
];

#[test]
fn the_pages_list_every_setting() {
    let sinks = sink_pages().into_iter().map(|page| (page, false));
    let stores = STORE_PAGES.into_iter().map(|page| (page, true));
    for ((kind, page, minimal), is_store) in sinks.chain(stores) {
        let toml: toml::Table = format!("kind = '{kind}'\n{minimal}\nno_such_setting = 1").parse().unwrap();
        let refused =
            if is_store { symphony_sinks::store("s", toml).err() } else { symphony_sinks::sink("s", toml).err() };
        let error = refused.unwrap().to_string();
        let settings: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
        assert!(settings.len() > 6, "{error}");
        for setting in settings {
            assert!(page.contains(&format!("\n| `{setting}` |")), "{setting} is missing in the page of {kind}");
        }
    }
}

#[test]
fn the_examples_of_the_pages_are_valid() {
    let files = crate::fixture::Files::new();
    let sinks = sink_pages().into_iter().map(|page| (page, "sinks"));
    let stores = STORE_PAGES.into_iter().map(|page| (page, "stores"));
    for ((kind, page, _), section) in sinks.chain(stores) {
        let example = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
        let table: toml::Table = example.parse().unwrap();
        let (name, settings) = table[section].as_table().unwrap().iter().next().unwrap();
        let mut settings = settings.as_table().unwrap().clone();
        assert_eq!(settings["kind"].as_str(), Some(kind));
        // The example names files of another machine.
        for (setting, text) in
            [("password_file", "secret"), ("secret_file", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]
        {
            if settings.contains_key(setting) {
                settings.insert(setting.to_owned(), files.write(setting, text).display().to_string().into());
            }
        }
        let authority = files.write("ca.pem", &crate::certificate_authority::CertificateAuthority::new().pem());
        match kind {
            "kafka" => {}
            "postgres" => {
                let url = settings["url"].as_str().unwrap();
                let url = url.replace("/etc/symphony/copies-ca.pem", authority.to_str().unwrap());
                settings.insert("url".to_owned(), url.into());
            }
            _ => {
                settings.insert("root_ca_file".to_owned(), authority.display().to_string().into());
            }
        }
        if section == "sinks" {
            symphony_sinks::sink(name, settings).unwrap();
        } else {
            symphony_sinks::store(name, settings).unwrap();
        }
    }
}
