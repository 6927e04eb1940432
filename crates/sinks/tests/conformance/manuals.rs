//! The manuals name every setting, and their examples are settings that work.

const MANUALS: [(&str, &str, &str); 4] = [
    ("nats", include_str!("../../../../docs/sinks/nats.md"), "url = 'tls://b'"),
    ("redis", include_str!("../../../../docs/sinks/redis.md"), "url = 'rediss://b'"),
    ("rabbitmq", include_str!("../../../../docs/sinks/rabbitmq.md"), "url = 'amqps://b'\nexchange = 'e'"),
    ("http", include_str!("../../../../docs/sinks/cloudevents.md"), "url = 'https://b.example/'"),
];
#[cfg(feature = "kafka")]
const KAFKA: (&str, &str, &str) =
    ("kafka", include_str!("../../../../docs/sinks/kafka.md"), "brokers = ['b:9092']\nallow_plain = true");

fn manuals() -> Vec<(&'static str, &'static str, &'static str)> {
    #[cfg(feature = "kafka")]
    let more = [KAFKA];
    #[cfg(not(feature = "kafka"))]
    let more = [];
    MANUALS.into_iter().chain(more).collect()
}

#[test]
fn the_manuals_name_every_setting() {
    for (kind, manual, least) in manuals() {
        let toml = format!("kind = '{kind}'\n{least}\nno_such_setting = 1");
        let said = symphony_sinks::sink("s", toml.parse().unwrap()).err().unwrap().to_string();
        let settings: Vec<&str> = said.split('`').skip(3).step_by(2).collect();
        assert!(settings.len() > 10, "{said}");
        for setting in settings {
            assert!(
                manual.contains(&format!("\n| `{setting}` |")),
                "{setting} is missing in the manual of {kind}"
            );
        }
    }
}

#[test]
fn the_examples_of_the_manuals_are_settings_that_work() {
    let files = crate::place::Files::new();
    for (kind, manual, _) in manuals() {
        let example = manual.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
        let table: toml::Table = example.parse().unwrap();
        let (name, settings) = table["sinks"].as_table().unwrap().iter().next().unwrap();
        let mut settings = settings.as_table().unwrap().clone();
        assert_eq!(settings["kind"].as_str(), Some(kind));
        // They are on another machine.
        for (setting, text) in
            [("password_file", "secret"), ("secret_file", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]
        {
            if settings.contains_key(setting) {
                settings.insert(setting.to_owned(), files.write(setting, text).display().to_string().into());
            }
        }
        let authority = files.write("ca.pem", &crate::authority::Authority::new().pem());
        if kind != "kafka" {
            settings.insert("root_ca_file".to_owned(), authority.display().to_string().into());
        }
        symphony_sinks::sink(name, settings).unwrap();
    }
}
