//! The script as one statement that any migration tool can run, in its own transaction or without one.
//!
//! - Tools take a percent sign, a colon or a question mark for a placeholder. So the text has their full-width forms, and
//!   the statement translates them back.
//! - Tools split a script at semicolons, or prepare it. So it is one DO block, which is also a transaction by itself.
//! - A tool goes on in the same transaction, with its own tables. So the settings and the role are restored.

use std::fmt::Write as _;

/// What tools take for a placeholder, and what the text has instead.
const PLACEHOLDERS: [(char, &str); 3] = [('%', "％"), (':', "："), ('?', "？")];

/// The settings that the script changes until the end of the transaction.
const SETTINGS: [&str; 5] = ["client_min_messages", "lock_timeout", "jit", "check_function_bodies", "search_path"];

const HEADING: &str = "\
-- One statement, for a migration tool. Percent sign, colon and question mark are written in their full-width forms, because
-- tools take them for placeholders. The statement translates them back.
";

/// One statement that runs the sections. The error of one quotes this section and no other.
pub(super) fn of(sections: &[String]) -> String {
    let mut statement = format!("{HEADING}do $install$\ndeclare\n");
    // Every name is qualified: the search_path is the tool's until the first section has pinned it.
    for setting in SETTINGS {
        let _ = writeln!(
            statement,
            "  v_{setting} constant pg_catalog.text = pg_catalog.current_setting('{setting}');"
        );
    }
    statement.push_str("begin\n");
    for section in sections {
        let text = PLACEHOLDERS.iter().fold(section.clone(), |text, (narrow, wide)| text.replace(*narrow, wide));
        let original = PLACEHOLDERS.iter().fold(format!("$section$\n{text}$section$"), |text, (narrow, wide)| {
            format!("pg_catalog.replace({text}, '{wide}', pg_catalog.chr({}))", u32::from(*narrow))
        });
        let _ = writeln!(statement, "execute {original};");
    }
    for setting in SETTINGS {
        let _ = writeln!(statement, "perform pg_catalog.set_config('{setting}', v_{setting}, true);");
    }
    statement.push_str("end\n$install$;\n");
    statement
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::schema::{Lane, script};

    #[test]
    fn no_section_has_what_the_statement_adds() {
        let script = script::script(&Lane::ALL);
        for added in ["％", "：", "？", "$section$", "$install$"] {
            assert!(!script.contains(added), "{added}");
        }
    }

    #[test]
    fn the_statement_has_nothing_that_a_tool_takes_for_a_placeholder() {
        for statement in [script::statement_within(&Lane::ALL, Duration::from_secs(10)), script::roles_statement()]
        {
            for placeholder in ["%", ":", "?", "${", "{{", "{%", "#{", "<%"] {
                assert!(!statement.contains(placeholder), "{placeholder}");
            }
        }
    }
}
