//! A real client and a real server, with faults between them.

use std::future::Future;

use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use super::*;
use crate::test_database::{Database, Server};
use crate::wait;

const DEFAULT_TIMEOUT: Duration = wait::DEFAULT_TIMEOUT;
const SHORT: Duration = Duration::from_millis(100);
const INSERT: &str = "insert into kept values ($1)";

#[tokio::test]
async fn a_lost_reply_leaves_the_row_committed_and_the_client_without_an_answer() {
    let fixture = Fixture::new().await;
    // Each form of a request: prepared statement, extended query, simple query.
    let prepared = async |client: Client| client.execute(INSERT, &[&1]).await.map(drop);
    fixture.loses_the_reply(prepared, 1).await;
    let at_once = async |client: Client| client.execute_typed(INSERT, &[(&2, Type::INT4)]).await.map(drop);
    fixture.loses_the_reply(at_once, 2).await;
    let simple = async |client: Client| client.batch_execute("INSERT INTO KEPT VALUES (3)").await;
    fixture.loses_the_reply(simple, 3).await;
    assert_eq!(fixture.proxy.counts().replies_lost, 3);
}

#[tokio::test]
async fn a_fault_hits_the_execution_of_a_prepared_statement_and_not_its_preparation() {
    let fixture = Fixture::new().await;
    let client = fixture.connect().await;
    let before = client.prepare(INSERT).await.unwrap();
    let fault = fixture.proxy.arm(FaultKind::ReplyLost, "into kept", 1);
    let after = client.prepare(INSERT).await.unwrap();
    client.execute("select 1", &[]).await.unwrap();
    assert_eq!(fault.fired(), 0);

    assert!(client.execute(&before, &[&1]).await.unwrap_err().is_closed());
    fault.wait_fired(1, DEFAULT_TIMEOUT).await.unwrap();
    assert!(client.execute(&after, &[&2]).await.unwrap_err().is_closed());
    assert_eq!(fixture.kept().await, [1]);
}

#[tokio::test]
async fn a_fault_loses_as_many_replies_as_it_was_armed_for() {
    let fixture = Fixture::new().await;
    let fault = fixture.proxy.arm(FaultKind::ReplyLost, "into kept values (2)", 1);
    let client = fixture.connect().await;
    // Pipelined: the second is sent before the reply to the first.
    let (one, two) = tokio::join!(
        client.batch_execute("insert into kept values (1)"),
        client.batch_execute("insert into kept values (2)"),
    );
    one.unwrap();
    assert!(two.unwrap_err().is_closed());
    let again = fixture.connect().await;
    again.batch_execute("insert into kept values (2)").await.unwrap();
    assert_eq!(fault.fired(), 1);
    assert_eq!(fixture.kept().await, [1, 2, 2]);

    let never = fixture.proxy.arm(FaultKind::ReplyLost, "into kept", 1);
    never.disarm();
    again.batch_execute("insert into kept values (3)").await.unwrap();
    let refusal = never.wait_fired(1, SHORT).await.unwrap_err();
    assert!(refusal.what.contains("into kept"), "{refusal}");
}

#[tokio::test]
async fn a_request_that_the_server_refuses_is_answered_and_leaves_the_fault_armed() {
    let fixture = Fixture::new().await;
    let fault = fixture.proxy.arm(FaultKind::ReplyLost, "into kept", 1);
    let client = fixture.connect().await;
    let refusal = client.batch_execute("insert into kept values ('x')").await.unwrap_err();
    assert_eq!(refusal.code().unwrap().code(), "22P02");
    assert_eq!(fault.fired(), 0);
    assert!(client.batch_execute("insert into kept values (1)").await.unwrap_err().is_closed());
    assert_eq!(fault.fired(), 1);
}

#[tokio::test]
async fn the_reply_to_a_commit_can_be_lost() {
    let fixture = Fixture::new().await;
    let mut client = fixture.connect().await;
    let fault = fixture.proxy.arm(FaultKind::ReplyLost, "commit", 1);
    let transaction = client.transaction().await.unwrap();
    transaction.execute(INSERT, &[&1]).await.unwrap();
    assert!(transaction.commit().await.unwrap_err().is_closed());
    fault.wait_fired(1, DEFAULT_TIMEOUT).await.unwrap();
    assert_eq!(fixture.kept().await, [1]);
}

#[tokio::test]
async fn a_reply_that_has_begun_is_not_lost_before_the_commit() {
    let fixture = Fixture::new().await;
    // The commit waits for a lock after the rows were sent.
    let waits_at_commit = "create function wait_at_commit() returns trigger language plpgsql as $$
                             begin perform pg_advisory_xact_lock(7); return null; end $$;
                           create constraint trigger wait_at_commit after insert on kept
                             deferrable initially deferred for each row execute function wait_at_commit();
                           select pg_advisory_lock(7)";
    fixture.direct.batch_execute(waits_at_commit).await.unwrap();
    let fault = fixture.proxy.arm(FaultKind::ReplyLost, "into kept", 1);
    let client = fixture.connect().await;
    let long = "insert into kept values (1) returning repeat('x', 100000)";
    let asking = tokio::spawn(async move { client.batch_execute(long).await });
    let blocked = "select from pg_locks where locktype = 'advisory' and not granted
                   and database = (select oid from pg_database where datname = current_database())";
    let blocked = async || !fixture.direct.query(blocked, &[]).await.unwrap().is_empty();
    wait::until("the commit waits for the lock", DEFAULT_TIMEOUT, blocked).await.unwrap();
    fault.wait_fired(1, SHORT).await.unwrap_err();

    fixture.direct.batch_execute("select pg_advisory_unlock(7)").await.unwrap();
    assert!(asking.await.unwrap().unwrap_err().is_closed());
    assert_eq!(fault.fired(), 1);
    assert_eq!(fixture.kept().await, [1]);
}

#[tokio::test]
async fn a_lost_request_is_not_executed() {
    let fixture = Fixture::new().await;
    let fault = fixture.proxy.arm(FaultKind::RequestLost, "into kept", 2);
    assert!(fixture.connect().await.execute(INSERT, &[&1]).await.unwrap_err().is_closed());
    let simple = "insert into kept values (2)";
    assert!(fixture.connect().await.batch_execute(simple).await.unwrap_err().is_closed());
    fault.wait_fired(2, DEFAULT_TIMEOUT).await.unwrap();
    fixture.server_has_closed().await;
    assert_eq!(fixture.kept().await, [0; 0]);
    assert_eq!(fixture.proxy.counts().requests_lost, 2);
}

#[tokio::test]
async fn a_held_reply_belongs_to_a_committed_row_and_arrives_when_released() {
    let fixture = Fixture::new().await;
    let fault = fixture.proxy.arm(FaultKind::ReplyHeld, "into kept", 2);
    let client = fixture.connect().await;
    let asking = tokio::spawn(async move { client.execute(INSERT, &[&1]).await });
    fault.wait_fired(1, DEFAULT_TIMEOUT).await.unwrap();
    assert_eq!(fixture.kept().await, [1]);
    assert!(!asking.is_finished());
    fault.release();
    assert_eq!(asking.await.unwrap().unwrap(), 1);
}

#[tokio::test]
async fn a_client_that_dies_while_its_reply_is_held_is_noticed_by_the_server() {
    let fixture = Fixture::new().await;
    let fault = fixture.proxy.arm(FaultKind::ReplyHeld, "into kept", 1);
    let (client, connection) = tokio_postgres::connect(fixture.proxy.url(), NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let asking = tokio::spawn(async move { client.execute(INSERT, &[&1]).await.map(drop) });
    fault.wait_fired(1, DEFAULT_TIMEOUT).await.unwrap();
    connection.abort();
    assert!(asking.await.unwrap().is_err());
    fixture.server_has_closed().await;
    assert_eq!(fixture.kept().await, [1]);
}

#[tokio::test]
async fn what_is_stalled_towards_the_server_is_not_executed_before_it_is_released() {
    let fixture = Fixture::new().await;
    let client = fixture.connect().await;
    fixture.proxy.stall(Direction::ToServer);
    let mut asking = pin(client.batch_execute("insert into kept values (1)"));
    assert!(tokio::time::timeout(SHORT, &mut asking).await.is_err());
    assert_eq!(fixture.kept().await, [0; 0]);
    fixture.proxy.release();
    asking.await.unwrap();
    assert_eq!(fixture.kept().await, [1]);
}

#[tokio::test]
async fn what_is_stalled_towards_the_client_is_executed_and_not_answered() {
    let fixture = Fixture::new().await;
    let client = fixture.connect().await;
    fixture.proxy.stall(Direction::ToClient);
    let mut asking = pin(client.batch_execute("insert into kept values (1)"));
    let executed = wait::until("the row is committed", DEFAULT_TIMEOUT, async || fixture.kept().await == [1]);
    tokio::select! {
        answer = &mut asking => panic!("the client got a reply: {answer:?}"),
        executed = executed => executed.unwrap(),
    }
    fixture.proxy.release();
    asking.await.unwrap();
}

#[tokio::test]
async fn a_cut_closes_every_connection_even_a_stalled_one() {
    let fixture = Fixture::new().await;
    let (one, other) = (fixture.connect().await, fixture.connect().await);
    fixture.proxy.stall(Direction::Both);
    fixture.proxy.cut(NewConnections::Accept).await;
    assert_eq!(fixture.proxy.open(), 0);
    fixture.proxy.release();
    for client in [one, other] {
        assert!(client.batch_execute("select 1").await.unwrap_err().is_closed());
    }
    fixture.server_has_closed().await;
    fixture.connect().await.batch_execute("select 1").await.unwrap();
    let counts = fixture.proxy.counts();
    assert_eq!((counts.connections, counts.cut), (3, 2));
}

#[tokio::test]
async fn after_a_cut_that_refuses_no_client_connects_until_it_is_allowed_again() {
    let fixture = Fixture::new().await;
    let client = fixture.connect().await;
    fixture.proxy.cut(NewConnections::Refuse).await;
    assert!(client.batch_execute("select 1").await.unwrap_err().is_closed());
    let refused = TcpStream::connect((HOST, fixture.proxy.port())).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);

    fixture.proxy.accept().await.unwrap();
    fixture.proxy.accept().await.unwrap();
    fixture.connect().await.batch_execute("select 1").await.unwrap();
}

#[tokio::test]
async fn a_redirected_proxy_forwards_new_connections_to_the_other_server() {
    let fixture = Fixture::new().await;
    let client = fixture.connect().await;
    let elsewhere = std::net::TcpListener::bind((HOST, 0)).unwrap();
    let port = elsewhere.local_addr().unwrap().port();
    fixture.proxy.redirect(&format!("postgres://{HOST}:{port}/")).unwrap();
    let url = fixture.proxy.url().to_owned();
    let new_connection = tokio::spawn(async move { tokio_postgres::connect(&url, NoTls).await.map(drop) });
    let accepted = tokio::task::spawn_blocking(move || elsewhere.accept().map(drop));
    tokio::time::timeout(DEFAULT_TIMEOUT, accepted).await.unwrap().unwrap().unwrap();
    assert!(new_connection.await.unwrap().is_err());
    client.batch_execute("select 1").await.unwrap();
}

#[tokio::test]
async fn notifications_and_cancellations_pass() {
    let fixture = Fixture::new().await;
    let (client, mut connection) = tokio_postgres::connect(fixture.proxy.url(), NoTls).await.unwrap();
    let (received, mut notifications) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message {
                received.send(notification.payload().to_owned()).unwrap();
            }
        }
    });
    client.batch_execute("listen channel").await.unwrap();
    fixture.direct.batch_execute("notify channel, 'payload'").await.unwrap();
    assert_eq!(tokio::time::timeout(DEFAULT_TIMEOUT, notifications.recv()).await.unwrap().unwrap(), "payload");

    let token = client.cancel_token();
    fixture.direct.batch_execute("begin; lock table kept").await.unwrap();
    let waiting = tokio::spawn(async move { client.batch_execute("select from kept").await });
    let waits = "select from pg_locks where not granted and relation = 'kept'::regclass
                 and database = (select oid from pg_database where datname = current_database())";
    let blocked = async || !fixture.direct.query(waits, &[]).await.unwrap().is_empty();
    wait::until("the request waits for the lock", DEFAULT_TIMEOUT, blocked).await.unwrap();
    token.cancel_query(NoTls).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap_err().code().unwrap().code(), "57014");
}

#[tokio::test]
async fn dropping_the_proxy_closes_all_connections() {
    let Fixture { proxy, direct: _direct, database: _database } = Fixture::new().await;
    let (client, connection) = tokio_postgres::connect(proxy.url(), NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let port = proxy.port();
    drop(proxy);
    let _ = tokio::time::timeout(DEFAULT_TIMEOUT, connection).await.unwrap().unwrap();
    assert!(client.is_closed());
    assert!(TcpStream::connect((HOST, port)).await.is_err());
}

fn pin<F: Future>(future: F) -> std::pin::Pin<Box<F>> {
    Box::pin(future)
}

/// A table, a session that reaches it directly, and a proxy before it.
struct Fixture {
    proxy: Proxy,
    direct: Client,
    database: Database,
}

impl Fixture {
    async fn new() -> Self {
        let database = Server::from_env().await.unwrap().empty_database().await.unwrap();
        let direct = database.connect().await.unwrap();
        direct.batch_execute("create table kept (value int)").await.unwrap();
        Self { proxy: Proxy::in_front_of(&database.url()).unwrap(), direct, database }
    }

    async fn connect(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(self.proxy.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    async fn kept(&self) -> Vec<i32> {
        let rows = self.direct.query("select value from kept order by value", &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Sends a request with a fault armed, and checks that the row is committed and the client got no reply.
    async fn loses_the_reply<F>(&self, ask: F, value: i32)
    where
        F: AsyncFnOnce(Client) -> Result<(), tokio_postgres::Error>,
    {
        let fault = self.proxy.arm(FaultKind::ReplyLost, "into kept", 1);
        let refusal = ask(self.connect().await).await.unwrap_err();
        assert!(refusal.is_closed(), "the client must see a lost connection: {refusal}");
        fault.wait_fired(1, DEFAULT_TIMEOUT).await.unwrap();
        assert_eq!(self.kept().await.last(), Some(&value), "the row must be committed");
    }

    /// Waits until only the direct session is connected.
    async fn server_has_closed(&self) {
        let others = "select from pg_stat_activity
                      where datname = current_database() and pid <> pg_backend_pid()
                        and backend_type = 'client backend'";
        let alone = async || self.direct.query(others, &[]).await.unwrap().is_empty();
        wait::until(format!("no other session is connected to {}", self.database.name()), DEFAULT_TIMEOUT, alone)
            .await
            .unwrap();
    }
}
