//! Every possible privilege on the objects of the schemas, with the statement that tries it.

use tokio_postgres::Client;

use super::super::evidence::Failure;

/// One privilege on one object.
#[derive(Debug)]
pub(super) struct Right {
    /// table, view, sequence, function, type or schema.
    pub(super) kind: &'static str,
    /// With its schema before it, unless it is one.
    pub(super) object: String,
    /// The privilege, as in GRANT.
    pub(super) what: &'static str,
    /// The column that it is on, if it is on one.
    pub(super) column: Option<String>,
    /// Queries the catalogue whether the role `$1` has it.
    pub(super) question: String,
    /// A statement that needs the privilege and that a rollback undoes.
    pub(super) statement: String,
    /// SQLSTATEs with which PostgreSQL refuses the statement for this kind of object, whatever the role.
    pub(super) impossible: &'static [&'static str],
}

/// INSERT into a read-only view or an identity column, TRUNCATE of a view, a foreign key to a view.
const NOT_FOR_VIEWS: [&str; 4] = ["55000", "42809", "0A000", "428C9"];

/// The schemas whose objects are tried.
pub(super) const SCHEMAS: &str = "array['symphony', 'm10_recovery']::regnamespace[]";

/// All privileges on all objects of our schemas.
pub(super) async fn rights(superuser: &Client) -> Result<Vec<Right>, Failure> {
    let mut rights = of_the_schemas();
    relations(superuser, &mut rights).await?;
    columns(superuser, &mut rights).await?;
    functions(superuser, &mut rights).await?;
    types(superuser, &mut rights).await?;
    Ok(rights)
}

fn of_the_schemas() -> Vec<Right> {
    let mut rights = Vec::new();
    for (schema, table) in [("symphony", "payment_outbox_pending"), ("m10_recovery", "outbox")] {
        for (what, statement) in [
            ("USAGE", format!("select '{schema}.{table}'::regclass")),
            ("CREATE", format!("create table {schema}.planted ()")),
        ] {
            rights.push(Right {
                kind: "schema",
                object: schema.into(),
                what,
                column: None,
                question: format!("select has_schema_privilege($1, '{schema}', '{what}')"),
                statement,
                impossible: &[],
            });
        }
    }
    rights
}

async fn relations(superuser: &Client, rights: &mut Vec<Right>) -> Result<(), Failure> {
    // With the columns of the primary key and their types, which a reference needs.
    let relations = format!("select format('%I.%I', c.relnamespace::regnamespace, c.relname), c.relkind::text,
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
           where c.relnamespace = any ({SCHEMAS}) and c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')
           order by 1");
    for row in superuser.query(&relations, &[]).await? {
        let (name, relkind, key, key_names): (String, String, String, String) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        if relkind == "S" {
            for what in ["USAGE", "SELECT", "UPDATE"] {
                rights.push(Right {
                    kind: "sequence",
                    object: name.clone(),
                    what,
                    column: None,
                    question: format!("select has_sequence_privilege($1, '{name}', '{what}')"),
                    statement: match what {
                        "USAGE" => format!("select nextval('{name}')"),
                        "SELECT" => format!("select last_value from {name}"),
                        _ => format!("select setval('{name}', 1)"),
                    },
                    impossible: &[],
                });
            }
            continue;
        }
        // UPDATE is tried for each column.
        let mut tries = vec![
            ("SELECT", format!("select * from {name} limit 0")),
            ("INSERT", format!("insert into {name} default values")),
            ("DELETE", format!("delete from {name} where false")),
            ("TRUNCATE", format!("truncate {name}")),
            (
                "REFERENCES",
                format!("create table planted ({key}, foreign key ({key_names}) references {name} ({key_names}))"),
            ),
            (
                "TRIGGER",
                format!(
                    "create trigger planted before insert on {name} for each statement execute function pg_catalog.suppress_redundant_updates_trigger()"
                ),
            ),
        ];
        if row.get::<_, i32>(4) >= 170_000 {
            tries.push(("MAINTAIN", format!("lock table {name} in access exclusive mode")));
        }
        for (what, statement) in tries {
            let view = matches!(relkind.as_str(), "v" | "m");
            rights.push(Right {
                kind: if view { "view" } else { "table" },
                object: name.clone(),
                what,
                column: None,
                question: format!("select has_table_privilege($1, '{name}', '{what}')"),
                statement,
                impossible: if view { &NOT_FOR_VIEWS } else { &[] },
            });
        }
    }
    Ok(())
}

async fn columns(superuser: &Client, rights: &mut Vec<Right>) -> Result<(), Failure> {
    let columns = format!("select format('%I.%I', c.relnamespace::regnamespace, c.relname), quote_ident(a.attname), c.relkind in ('v', 'm')
                   from pg_class c
                   join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
                   where c.relnamespace = any ({SCHEMAS}) and c.relkind in ('r', 'p', 'v', 'm', 'f')
                   order by 1, a.attnum");
    for row in superuser.query(&columns, &[]).await? {
        let (name, column, view): (String, String, bool) = (row.get(0), row.get(1), row.get(2));
        let tries = [
            ("SELECT of a column", "SELECT", format!("select {column} from {name} limit 0")),
            ("INSERT of a column", "INSERT", format!("insert into {name} ({column}) values (default)")),
            ("UPDATE of a column", "UPDATE", format!("update {name} set {column} = default where false")),
        ];
        for (what, privilege, statement) in tries {
            rights.push(Right {
                kind: if view { "view" } else { "table" },
                object: name.clone(),
                what,
                column: Some(column.clone()),
                question: format!("select has_column_privilege($1, '{name}', '{column}', '{privilege}')"),
                statement,
                impossible: if view { &NOT_FOR_VIEWS } else { &[] },
            });
        }
    }
    Ok(())
}

async fn functions(superuser: &Client, rights: &mut Vec<Right>) -> Result<(), Failure> {
    // Null arguments: a role with EXECUTE gets the refusal of the function.
    let functions = format!(
        "select format('%I.%I', f.pronamespace::regnamespace, f.proname), f.oid::regprocedure::text,
             coalesce((select string_agg(format('null::%s', format_type(t.t, null)), ', ' order by t.place)
                       from unnest(f.proargtypes) with ordinality as t (t, place)), '')
           from pg_proc f where f.pronamespace = any ({SCHEMAS}) order by 1"
    );
    for row in superuser.query(&functions, &[]).await? {
        let (name, signature, arguments): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        rights.push(Right {
            kind: "function",
            question: format!("select has_function_privilege($1, '{signature}', 'EXECUTE')"),
            statement: format!("select {name}({arguments})"),
            object: name,
            what: "EXECUTE",
            column: None,
            impossible: &[],
        });
    }
    Ok(())
}

async fn types(superuser: &Client, rights: &mut Vec<Right>) -> Result<(), Failure> {
    let types = format!(
        "select format('%I.%I', t.typnamespace::regnamespace, t.typname) from pg_type t
                 where t.typnamespace = any ({SCHEMAS}) and t.typtype in ('e', 'd', 'r') order by 1"
    );
    for row in superuser.query(&types, &[]).await? {
        let name: String = row.get(0);
        rights.push(Right {
            kind: "type",
            question: format!("select has_type_privilege($1, '{name}', 'USAGE')"),
            statement: format!("create table planted (a {name})"),
            object: name,
            what: "USAGE",
            column: None,
            impossible: &[],
        });
    }
    Ok(())
}
