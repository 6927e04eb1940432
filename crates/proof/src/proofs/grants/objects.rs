//! Every right that there can be on the objects of the schema, with the statement that tries it.

use tokio_postgres::Client;

use super::super::evidence::Failure;

/// One right on one object.
#[derive(Debug)]
pub(super) struct Right {
    /// table, view, sequence, function, type or schema.
    pub(super) kind: &'static str,
    pub(super) object: String,
    /// The right, in the words of GRANT.
    pub(super) what: &'static str,
    /// Asks the catalogue whether the role `$1` has it.
    pub(super) question: String,
    /// Needs the right, and changes nothing that a rollback does not undo.
    pub(super) statement: String,
    /// With what the statement is refused, whoever tries, because the object is not of that kind.
    pub(super) impossible: &'static [&'static str],
}

/// Writing to a view that cannot be written to, truncating it, or referring to it.
const NOT_FOR_VIEWS: [&str; 3] = ["55000", "42809", "0A000"];

/// All rights on all objects that the catalogue has in schema symphony.
pub(super) async fn rights(superuser: &Client) -> Result<Vec<Right>, Failure> {
    let mut rights = of_the_schema();
    relations(superuser, &mut rights).await?;
    columns(superuser, &mut rights).await?;
    functions(superuser, &mut rights).await?;
    types(superuser, &mut rights).await?;
    Ok(rights)
}

fn of_the_schema() -> Vec<Right> {
    let right = |what, statement: &str| Right {
        kind: "schema",
        object: "symphony".into(),
        what,
        question: format!("select has_schema_privilege($1, 'symphony', '{what}')"),
        statement: statement.into(),
        impossible: &[],
    };
    vec![
        right("USAGE", "select 'symphony.payment_outbox_pending'::regclass"),
        right("CREATE", "create table symphony.planted ()"),
    ]
}

async fn relations(superuser: &Client, rights: &mut Vec<Right>) -> Result<(), Failure> {
    // With the columns of the primary key and their types, which a reference needs.
    let relations = "select c.relname::text, c.relkind::text,
             coalesce((select string_agg(format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod)), ', ' order by k.place)
                       from pg_index i
                       cross join lateral unnest(i.indkey::int2[]) with ordinality as k (attnum, place)
                       join pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum
                       where i.indrelid = c.oid and i.indisprimary), 'a int'),
             coalesce((select string_agg(quote_ident(a.attname), ', ' order by k.place)
                       from pg_index i
                       cross join lateral unnest(i.indkey::int2[]) with ordinality as k (attnum, place)
                       join pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum
                       where i.indrelid = c.oid and i.indisprimary), 'a'),
             current_setting('server_version_num')::int
           from pg_class c
           where c.relnamespace = 'symphony'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')
           order by c.relname";
    for row in superuser.query(relations, &[]).await? {
        let (name, relkind, key, key_names): (String, String, String, String) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        if relkind == "S" {
            for what in ["USAGE", "SELECT", "UPDATE"] {
                rights.push(Right {
                    kind: "sequence",
                    object: name.clone(),
                    what,
                    question: format!("select has_sequence_privilege($1, 'symphony.{name}', '{what}')"),
                    statement: match what {
                        "USAGE" => format!("select nextval('symphony.{name}')"),
                        "SELECT" => format!("select last_value from symphony.{name}"),
                        _ => format!("select setval('symphony.{name}', 1)"),
                    },
                    impossible: &[],
                });
            }
            continue;
        }
        // UPDATE is tried for each column.
        let mut tries = vec![
            ("SELECT", format!("select * from symphony.{name} limit 0")),
            ("INSERT", format!("insert into symphony.{name} default values")),
            ("DELETE", format!("delete from symphony.{name} where false")),
            ("TRUNCATE", format!("truncate symphony.{name}")),
            (
                "REFERENCES",
                format!(
                    "create table planted ({key}, foreign key ({key_names}) references symphony.{name} ({key_names}))"
                ),
            ),
            (
                "TRIGGER",
                format!(
                    "create trigger planted before insert on symphony.{name} for each statement execute function pg_catalog.suppress_redundant_updates_trigger()"
                ),
            ),
        ];
        if row.get::<_, i32>(4) >= 170_000 {
            tries.push(("MAINTAIN", format!("lock table symphony.{name} in access exclusive mode")));
        }
        for (what, statement) in tries {
            let view = matches!(relkind.as_str(), "v" | "m");
            rights.push(Right {
                kind: if view { "view" } else { "table" },
                object: name.clone(),
                what,
                question: format!("select has_table_privilege($1, 'symphony.{name}', '{what}')"),
                statement,
                impossible: if view { &NOT_FOR_VIEWS } else { &[] },
            });
        }
    }
    Ok(())
}

async fn columns(superuser: &Client, rights: &mut Vec<Right>) -> Result<(), Failure> {
    let columns = "select c.relname::text, quote_ident(a.attname), c.relkind in ('v', 'm')
                   from pg_class c
                   join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
                   where c.relnamespace = 'symphony'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f')
                   order by c.relname, a.attnum";
    for row in superuser.query(columns, &[]).await? {
        let (name, column, view): (String, String, bool) = (row.get(0), row.get(1), row.get(2));
        let tries = [
            ("SELECT of a column", "SELECT", format!("select {column} from symphony.{name} limit 0")),
            ("INSERT of a column", "INSERT", format!("insert into symphony.{name} ({column}) values (default)")),
            ("UPDATE of a column", "UPDATE", format!("update symphony.{name} set {column} = default where false")),
        ];
        for (what, privilege, statement) in tries {
            rights.push(Right {
                kind: if view { "view" } else { "table" },
                object: name.clone(),
                what,
                question: format!("select has_column_privilege($1, 'symphony.{name}', '{column}', '{privilege}')"),
                statement,
                impossible: if view { &NOT_FOR_VIEWS } else { &[] },
            });
        }
    }
    Ok(())
}

async fn functions(superuser: &Client, rights: &mut Vec<Right>) -> Result<(), Failure> {
    // Without arguments that make sense: whoever may call gets as far as being told so.
    let functions = "select f.proname::text, f.oid::regprocedure::text,
             coalesce((select string_agg(format('null::%s', format_type(t.t, null)), ', ' order by t.place)
                       from unnest(f.proargtypes) with ordinality as t (t, place)), '')
           from pg_proc f where f.pronamespace = 'symphony'::regnamespace order by f.proname";
    for row in superuser.query(functions, &[]).await? {
        let (name, signature, arguments): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        rights.push(Right {
            kind: "function",
            question: format!("select has_function_privilege($1, '{signature}', 'EXECUTE')"),
            statement: format!("select symphony.{name}({arguments})"),
            object: name,
            what: "EXECUTE",
            impossible: &[],
        });
    }
    Ok(())
}

async fn types(superuser: &Client, rights: &mut Vec<Right>) -> Result<(), Failure> {
    let types = "select t.typname::text from pg_type t
                 where t.typnamespace = 'symphony'::regnamespace and t.typtype in ('e', 'd', 'r') order by t.typname";
    for row in superuser.query(types, &[]).await? {
        let name: String = row.get(0);
        rights.push(Right {
            kind: "type",
            question: format!("select has_type_privilege($1, 'symphony.{name}', 'USAGE')"),
            statement: format!("create table planted (a symphony.{name})"),
            object: name,
            what: "USAGE",
            impossible: &[],
        });
    }
    Ok(())
}
