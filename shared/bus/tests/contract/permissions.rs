//! What each login of `deploy/chart/files/nats.conf` may not do, whatever program uses it: on a real server, subject by
//! subject.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anteroom_bus::{Address, Bus, Channel, Connection, LogScope, Serving, nats::NatsBus};
use async_nats::{Client, ConnectOptions, Event};
use futures::StreamExt as _;
use tokio::{sync::mpsc, time::timeout};

use crate::{
    deployed::{Deployed, deployed, deployed_with},
    harness::until,
    support::{Reader, Writer, put, within},
};

/// A timeout for what the server says at once.
const PATIENCE: Duration = Duration::from_secs(20);

/// Subjects that somebody may publish to, of everything that there is.
const PUBLISHED: [&str; 47] = [
    "ar.default.obj.v.n.o",
    "ar.default.ctl.view.v",
    "ar.default.ctl.lease.i.0",
    "ar.default.beat",
    "ar.default.rbeat",
    "ar.default.wbeat",
    "ar.default.violation",
    "ar.default.tap",
    "ar.default.tapped",
    "ar.default.status",
    "ar.default.q.v",
    "ar.default.qf.v",
    "ar.default.qi.r.v",
    "ar.default.live",
    "ar.default.write",
    "ar.other.live",
    "_INBOX_watcher.a",
    "_INBOX_cache_replica.a",
    "_INBOX_webhook.a",
    "_INBOX_reporter.a",
    "_INBOX_operator.a",
    "$JS.API.INFO",
    "$JS.API.STREAM.LIST",
    "$JS.API.STREAM.INFO.anteroom-default",
    "$JS.API.STREAM.CREATE.anteroom-default",
    "$JS.API.STREAM.CREATE.other",
    "$JS.API.STREAM.UPDATE.anteroom-default",
    "$JS.API.STREAM.DELETE.anteroom-default",
    "$JS.API.STREAM.PURGE.anteroom-default",
    "$JS.API.STREAM.MSG.GET.anteroom-default",
    "$JS.API.STREAM.MSG.DELETE.anteroom-default",
    "$JS.API.STREAM.SNAPSHOT.anteroom-default",
    "$JS.API.CONSUMER.CREATE.anteroom-default",
    "$JS.API.CONSUMER.CREATE.anteroom-default.c",
    "$JS.API.CONSUMER.DURABLE.CREATE.anteroom-default.c",
    "$JS.API.CONSUMER.DELETE.anteroom-default.c",
    "$JS.API.CONSUMER.MSG.NEXT.anteroom-default.c",
    "ar.default.js.STREAM.INFO.anteroom-default",
    "ar.default.js.STREAM.CREATE.anteroom-default",
    "ar.default.js.STREAM.UPDATE.anteroom-default",
    "ar.default.js.STREAM.PURGE.anteroom-default",
    "ar.default.js.STREAM.MSG.GET.anteroom-default",
    "ar.default.js.STREAM.DELETE.anteroom-default",
    "ar.default.js.CONSUMER.CREATE.anteroom-default.c",
    "ar.default.js.CONSUMER.DELETE.anteroom-default.c",
    "ar.default.js.CONSUMER.MSG.NEXT.anteroom-default.c",
    "$SYS.REQ.SERVER.PING",
];

/// Subjects that somebody may subscribe to, each with its queue group, or alone.
const SUBSCRIBED: [(&str, &str); 23] = [
    ("_INBOX_watcher.>", ""),
    ("_INBOX_cache_replica.>", ""),
    ("_INBOX_webhook.>", ""),
    ("_INBOX_reporter.>", ""),
    ("ar.default.beat", ""),
    ("ar.default.rbeat", ""),
    ("ar.default.wbeat", ""),
    ("ar.default.violation", ""),
    ("ar.default.tap", ""),
    ("ar.default.tapped", ""),
    ("ar.default.status", ""),
    ("ar.default.status", "watchers"),
    ("_INBOX_operator.>", ""),
    ("ar.default.live", ""),
    ("ar.default.live", "watchers"),
    ("ar.default.write", ""),
    ("ar.default.write", "watchers"),
    ("ar.default.q.>", ""),
    ("ar.default.q.>", "replicas"),
    ("ar.default.qi.>", "replicas"),
    ("ar.default.obj.>", ""),
    ("$JS.>", ""),
    (">", ""),
];

/// The permissions of one login: all subjects that the login may use.
struct Allowed {
    user: &'static str,
    reads_the_log: bool,
    publish: &'static [&'static str],
    subscribe: &'static [(&'static str, &'static str)],
}

/// The first is answered by the login's own account, which has no JetStream.
const READS_THE_LOG: [&str; 4] = [
    "$JS.API.STREAM.INFO.anteroom-default",
    "ar.default.js.STREAM.INFO.anteroom-default",
    "ar.default.js.CONSUMER.CREATE.anteroom-default.c",
    "ar.default.js.CONSUMER.MSG.NEXT.anteroom-default.c",
];

const LOGINS: [Allowed; 5] = [
    Allowed {
        user: "watcher",
        reads_the_log: true,
        publish: &[
            "ar.default.obj.v.n.o",
            "ar.default.ctl.view.v",
            "ar.default.ctl.lease.i.0",
            "ar.default.beat",
            "ar.default.js.STREAM.CREATE.anteroom-default",
            "ar.default.js.STREAM.UPDATE.anteroom-default",
            "ar.default.js.STREAM.PURGE.anteroom-default",
            "ar.default.js.STREAM.MSG.GET.anteroom-default",
        ],
        subscribe: &[
            ("_INBOX_watcher.>", ""),
            ("ar.default.beat", ""),
            ("ar.default.rbeat", ""),
            ("ar.default.wbeat", ""),
            ("ar.default.live", "watchers"),
            ("ar.default.write", "watchers"),
            ("ar.default.status", "watchers"),
        ],
    },
    Allowed {
        user: "replica",
        reads_the_log: true,
        publish: &["ar.default.rbeat"],
        subscribe: &[
            ("_INBOX_cache_replica.>", ""),
            ("ar.default.beat", ""),
            ("ar.default.rbeat", ""),
            ("ar.default.q.>", "replicas"),
            ("ar.default.qi.>", "replicas"),
        ],
    },
    Allowed {
        user: "webhook",
        reads_the_log: true,
        publish: &[
            "ar.default.wbeat",
            "ar.default.violation",
            "ar.default.tapped",
            "ar.default.q.v",
            "ar.default.qf.v",
            "ar.default.qi.r.v",
            "ar.default.live",
            "ar.default.write",
        ],
        subscribe: &[
            ("_INBOX_webhook.>", ""),
            ("ar.default.beat", ""),
            ("ar.default.rbeat", ""),
            ("ar.default.tap", ""),
        ],
    },
    Allowed {
        user: "reporter",
        reads_the_log: true,
        publish: &[
            "ar.default.q.v",
            "ar.default.qf.v",
            "ar.default.qi.r.v",
            "ar.default.live",
            "ar.default.write",
        ],
        subscribe: &[
            ("_INBOX_reporter.>", ""),
            ("ar.default.beat", ""),
            ("ar.default.rbeat", ""),
            ("ar.default.violation", ""),
        ],
    },
    Allowed {
        user: "operator",
        reads_the_log: false,
        publish: &["ar.default.tap", "ar.default.status"],
        subscribe: &[
            ("_INBOX_operator.>", ""),
            ("ar.default.beat", ""),
            ("ar.default.rbeat", ""),
            ("ar.default.wbeat", ""),
            ("ar.default.tapped", ""),
        ],
    },
];

/// A connection, and what the server refuses of it.
struct Login {
    client: Client,
    refusals: mpsc::UnboundedReceiver<String>,
}

impl Login {
    async fn of(deployed: &Deployed, user: &str) -> Self {
        let (told, refusals) = mpsc::unbounded_channel();
        let options = deployed.options(user).event_callback(move |event| {
            if let Event::ServerError(error) = event {
                let _ = told.send(error.to_string());
            }
            std::future::ready(())
        });
        Self {
            client: options.connect(deployed.server.url()).await.unwrap(),
            refusals,
        }
    }

    /// Publishes nothing to a subject that no login may publish to, and returns what was refused before that.
    async fn refused_so_far(&mut self) -> Vec<String> {
        const NOBODYS: &str = "nobodys.subject";
        self.client.publish(NOBODYS, "".into()).await.unwrap();
        let mut refused = Vec::new();
        loop {
            let said = timeout(PATIENCE, self.refusals.recv()).await;
            let said = said.unwrap().unwrap();
            if said.contains(NOBODYS) {
                return refused;
            }
            refused.push(said);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_login_may_do_its_own_work_and_nothing_else() {
    let deployed = deployed().await;
    for login in &LOGINS {
        let mut connection = Login::of(&deployed, login.user).await;
        let may_publish: BTreeSet<&str> = login
            .publish
            .iter()
            .chain(READS_THE_LOG.iter().filter(|_| login.reads_the_log))
            .copied()
            .collect();
        for subject in PUBLISHED {
            let published = connection.client.publish(subject, "".into()).await;
            published.unwrap();
            let refused = connection.refused_so_far().await;
            let is_refused = refused.iter().any(|said| said.contains("Publish"));
            let who = login.user;
            assert_ne!(
                is_refused,
                may_publish.contains(subject),
                "{who} {subject}: {refused:?}"
            );
        }
        for (subject, queue) in SUBSCRIBED {
            let client = &connection.client;
            let subscription = match queue {
                "" => client.subscribe(subject).await,
                queue => client.queue_subscribe(subject, queue.to_owned()).await,
            };
            let subscription = subscription.unwrap();
            let refused = connection.refused_so_far().await;
            let is_refused = refused.iter().any(|said| said.contains("Subscription"));
            let may = login.subscribe.contains(&(subject, queue));
            let who = login.user;
            assert_ne!(is_refused, may, "{who} {subject} {queue}: {refused:?}");
            drop(subscription);
        }
    }
}

/// A client without a key, with an unknown key, or with a foreign authority gets no connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_known_key_logs_in_and_only_to_a_trusted_server() {
    let (deployed, other) = (deployed().await, deployed().await);
    let connects = async |options: ConnectOptions| {
        let connecting = timeout(PATIENCE, options.connect(deployed.server.url()));
        connecting.await.unwrap().is_ok()
    };
    let seed = |of: &Deployed| of.keys.logins[0].seed.clone();
    for (what, options, expected) in [
        ("its own", deployed.options("watcher"), true),
        ("no key", deployed.trusting(ConnectOptions::new()), false),
        (
            "an unknown key",
            deployed.trusting(ConnectOptions::with_nkey(seed(&other))),
            false,
        ),
        (
            "another authority",
            other.trusting(ConnectOptions::with_nkey(seed(&deployed))),
            false,
        ),
        (
            "no authority",
            ConnectOptions::with_nkey(seed(&deployed)),
            false,
        ),
    ] {
        assert_eq!(connects(options).await, expected, "{what}");
    }
}

/// Consumers that a server of this test lets all logins have together.
const CONSUMERS_MAX: usize = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stolen_login_makes_so_many_consumers_and_stops_no_reader() {
    let deployed = deployed_with(|config| {
        let limited = config.replace(
            "max_consumers: 2048",
            &format!("max_consumers: {CONSUMERS_MAX}"),
        );
        assert_ne!(limited, config, "the deployed limit is another one");
        limited
    })
    .await;
    let bus = |config| async {
        let bus: Arc<dyn Bus> = Arc::new(NatsBus::connect(config).await.unwrap());
        until(&*bus, Connection::Up).await;
        bus
    };
    let writer = Writer::new(bus(deployed.login("watcher", "watcher")).await).await;
    let replica = bus(deployed.login("replica", "cache_replica")).await;
    let mut reader = Reader::new(&*replica, LogScope::All);
    let first = writer.append(vec![put("a", "x", 1)]).await;
    reader.caught_up_at(first).await;

    let options = deployed
        .options("replica")
        .custom_inbox_prefix("_INBOX_cache_replica");
    let stolen = options.connect(deployed.server.url()).await.unwrap();
    let mut made = 0;
    let refusal = loop {
        let name = format!("hoard-{made}");
        let subject = format!("ar.default.js.CONSUMER.CREATE.anteroom-default.{name}");
        let config = serde_json::json!({ "stream_name": "anteroom-default",
            "config": { "name": name, "durable_name": name, "ack_policy": "none" } });
        let request = stolen.request(subject, config.to_string().into());
        let answer = within(request).await.unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&answer.payload).unwrap();
        if !answer["error"].is_null() {
            break answer["error"].clone();
        }
        made += 1;
        assert!(made < CONSUMERS_MAX, "one is the reader's");
    };
    assert_eq!(refusal["err_code"], 10026, "{refusal}");
    assert!(made > 0);
    let second = writer.append(vec![put("a", "y", 1)]).await;
    reader.until(|reader| reader.last >= second).await;
}

async fn bus_of_a_watcher(deployed: &Deployed) -> Arc<dyn Bus> {
    let login = deployed.login("watcher", "watcher");
    let bus = Arc::new(NatsBus::connect(login).await.unwrap());
    until(&*bus, Connection::Up).await;
    bus
}

/// Subjects to which a reply would do harm. NATS lets each login name any reply subject.
const HARMFUL_REPLIES: [&str; 8] = [
    "$JS.API.STREAM.DELETE.anteroom-default",
    "$JS.API.STREAM.PURGE.anteroom-default",
    "$JS.API.CONSUMER.DELETE.anteroom-default.stolen",
    "ar.default.obj.v.n.o",
    "ar.default.ctl.view.v",
    "ar.default.ctl.lease.i.0",
    "ar.default.js.CONSUMER.MSG.NEXT.anteroom-default.stolen",
    "ar.default.beat",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_reply_subject_gets_around_the_permissions_of_a_login() {
    let deployed = deployed().await;
    let bus = bus_of_a_watcher(&deployed).await;
    let mut beats = bus.subscribe(Channel::Writers).await.unwrap();
    let writer = Writer::new(Arc::clone(&bus)).await;
    writer.append(vec![put("v", "x", 1)]).await;
    let status = bus.serve(&Address::Status).await.unwrap();
    let answering = tokio::spawn(answer_all(status));
    let before = bus.head().await.unwrap();
    for user in ["replica", "webhook", "reporter", "operator"] {
        let prefix = match user {
            "replica" => "_INBOX_cache_replica".to_owned(),
            user => format!("_INBOX_{user}"),
        };
        let options = deployed.options(user).custom_inbox_prefix(prefix);
        let stolen = options.connect(deployed.server.url()).await.unwrap();
        let questions: Vec<(&str, serde_json::Value)> = match user {
            "operator" => vec![("ar.default.status", serde_json::json!({}))],
            _ => {
                let config = serde_json::json!({ "stream_name": "anteroom-default",
                    "config": { "name": "stolen", "ack_policy": "none", "mem_storage": true,
                        "filter_subjects": ["ar.default.ctl.none"] } });
                let create = "ar.default.js.CONSUMER.CREATE.anteroom-default.stolen";
                let made = stolen.request(create, config.to_string().into());
                assert!(!within(made).await.unwrap().payload.is_empty());
                let pull = serde_json::json!({ "batch": 1, "no_wait": true });
                vec![
                    (
                        "ar.default.js.CONSUMER.MSG.NEXT.anteroom-default.stolen",
                        pull,
                    ),
                    (
                        "ar.default.js.STREAM.INFO.anteroom-default",
                        serde_json::json!({}),
                    ),
                    ("ar.default.live", serde_json::json!({})),
                ]
            }
        };
        for (question, body) in &questions {
            for reply in HARMFUL_REPLIES {
                let body = body.to_string().into();
                let asked = stolen.publish_with_reply(*question, reply, body).await;
                asked.unwrap();
            }
        }
        // What was asked before is answered before.
        for (question, body) in questions {
            if question != "ar.default.live" {
                within(stolen.request(question, body.to_string().into()))
                    .await
                    .unwrap();
            }
        }
        assert_eq!(bus.head().await.unwrap(), before, "{user}");
    }
    assert!(
        beats.try_recv().is_err(),
        "nothing of it is heard as a beat"
    );
    answering.abort();
    let mut reader = Reader::new(&*bus, LogScope::All);
    reader.caught_up_at(before.last).await;
}

/// Subjects that somebody hears. JetStream publishes a record at whatever subject a consumer names.
const DELIVERED: [&str; 14] = [
    "ar.default.beat",
    "ar.default.rbeat",
    "ar.default.wbeat",
    "ar.default.violation",
    "ar.default.tap",
    "ar.default.tapped",
    "ar.default.status",
    "ar.default.live",
    "ar.default.write",
    "ar.default.q.v",
    "_INBOX_watcher.a",
    "_INBOX_cache_replica.a",
    "_INBOX_webhook.a",
    "_INBOX_operator.a",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_consumer_delivers_to_a_subject_that_somebody_hears() {
    let deployed = deployed().await;
    let bus = bus_of_a_watcher(&deployed).await;
    let writer = Writer::new(Arc::clone(&bus)).await;
    writer
        .append(vec![put("v", "x", 1), put("v", "y", 1)])
        .await;
    let mut heard = Vec::new();
    for login in &LOGINS {
        let client = Login::of(&deployed, login.user).await.client;
        for (subject, queue) in login.subscribe {
            let subscribed = match *queue {
                "" => client.subscribe(*subject).await,
                queue => client.queue_subscribe(*subject, queue.to_owned()).await,
            };
            let to = login.user;
            heard.push(
                subscribed
                    .unwrap()
                    .map(move |message| (to, message))
                    .boxed(),
            );
        }
        client.flush().await.unwrap();
    }
    let mut heard = futures::stream::select_all(heard);
    for user in ["replica", "webhook", "reporter"] {
        let prefix = match user {
            "replica" => "_INBOX_cache_replica".to_owned(),
            user => format!("_INBOX_{user}"),
        };
        let options = deployed.options(user).custom_inbox_prefix(prefix);
        let stolen = options.connect(deployed.server.url()).await.unwrap();
        for (number, at) in DELIVERED.into_iter().enumerate() {
            let name = format!("{user}-{number}");
            let subject = format!("ar.default.js.CONSUMER.CREATE.anteroom-default.{name}");
            let config = serde_json::json!({ "stream_name": "anteroom-default",
                "config": { "name": name, "deliver_subject": at, "deliver_policy": "all",
                    "ack_policy": "none", "mem_storage": true } });
            let made = stolen.request(subject, config.to_string().into());
            assert!(!within(made).await.unwrap().payload.is_empty());
        }
    }
    let delivered = async {
        loop {
            let (to, message) = heard.next().await.unwrap();
            let reply = message.reply.as_deref().unwrap_or_default();
            if reply.starts_with("$JS.ACK.") {
                break (to, message.subject);
            }
        }
    };
    let delivered = timeout(Duration::from_secs(2), delivered).await;
    assert!(delivered.is_err(), "{delivered:?}");
}

/// Answers every call.
async fn answer_all(mut serving: Serving) {
    while let Some(incoming) = serving.next().await {
        if let Ok(incoming) = incoming {
            incoming.answer("{}".into()).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operators_message_that_is_longer_than_a_tap_reaches_nobody() {
    let deployed = deployed().await;
    let options = deployed.options("webhook");
    let webhook = options.connect(deployed.server.url()).await.unwrap();
    let mut taps = webhook.subscribe("ar.default.tap").await.unwrap();
    webhook.flush().await.unwrap();
    let options = deployed.options("operator");
    let operator = options.connect(deployed.server.url()).await.unwrap();
    for bytes in [16 * 1024, 4 * 1024] {
        let tap = vec![b'x'; bytes].into();
        // The client may refuse the longer one itself.
        let _ = operator.publish("ar.default.tap", tap).await;
    }
    // The server ends the connection of the longer one. The client comes back.
    let heard = async {
        loop {
            let tap = vec![b'y'; 1024].into();
            let _ = operator.publish("ar.default.tap", tap).await;
            let heard = timeout(Duration::from_millis(200), taps.next()).await;
            if let Ok(heard) = heard {
                break heard.unwrap().payload.len();
            }
        }
    };
    let heard = within(heard).await;
    assert!(heard < 16 * 1024, "{heard}");
}

/// The limit of subscriptions of one operator's connection, in the deployed configuration.
const OPERATOR_SUBSCRIPTIONS_MAX: usize = 64;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operators_connections_have_few_subscriptions() {
    let deployed = deployed().await;
    let mut connection = Login::of(&deployed, "operator").await;
    let mut subscriptions = Vec::new();
    for number in 0..=OPERATOR_SUBSCRIPTIONS_MAX {
        let inbox = format!("_INBOX_operator.{number}");
        subscriptions.push(connection.client.subscribe(inbox).await.unwrap());
    }
    let said = timeout(PATIENCE, connection.refusals.recv()).await.unwrap();
    let said = said.unwrap();
    assert!(said.contains("maximum subscriptions"), "{said}");
}
