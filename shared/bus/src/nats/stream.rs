//! The JetStream stream of the log: its creation and its configuration.

use std::{fmt::Debug, time::Duration};

use anteroom_model::{Incarnation, limits::MESSAGE_BYTES_MAX};
use anteroom_wire::{PROTOCOL_VERSION, status::LogFaults, subject::Subjects};
use async_nats::jetstream::stream::{
    ClusterInfo, Config, DiscardPolicy, Info, PeerInfo, RetentionPolicy, StorageType,
};
use rand::Rng;

use super::{
    NatsConfig,
    api::{self, Api, ApiError, INCARNATION, code},
};
use crate::{BusError, LogHead};

/// The oldest server whose atomic batches keep their fence (nats-server issue 8376).
pub(super) const SERVER_VERSION_MIN: &str = "2.14.5";

/// The time without a word of a server after which its copy counts as missing. A copy of a log that is written to may be some
/// records behind at any moment.
const COPY_SILENCE_MAX: Duration = Duration::from_secs(10);

/// Creates the stream, or adopts an existing stream unchanged.
pub(super) async fn ensure(
    api: &Api,
    subjects: &Subjects,
    config: &NatsConfig,
) -> Result<LogHead, BusError> {
    let found = match api.info().await {
        Ok(found) => found,
        Err(error) if error.code() == Some(code::STREAM_NOT_FOUND) => {
            match make(api, subjects, config).await {
                Ok(made) => made,
                // Another writer was faster.
                Err(error) if error.code() == Some(code::STREAM_NAME_IN_USE) => api.info().await?,
                Err(error) => return Err(error.into()),
            }
        }
        Err(error) => return Err(error.into()),
    };
    let info = adopt(api, found, subjects, config).await?;
    require_features(&info.config)?;
    api::head(&info).ok_or(BusError::NoLog)
}

/// Empties the stream and gives it a new incarnation, if its present incarnation is `incarnation`. The stream is
/// emptied first, so that no old record is read under the new name. If two watchers do so at once, readers begin
/// twice.
pub(super) async fn remake(api: &Api, incarnation: &Incarnation) -> Result<(), BusError> {
    let mut config = api.info().await?.config;
    if config.metadata.get(INCARNATION) == Some(&incarnation.0) {
        api.purge_all().await?;
        config
            .metadata
            .insert(INCARNATION.to_owned(), new_incarnation());
        api.update(&config).await?;
    }
    Ok(())
}

fn new_incarnation() -> String {
    format!("{:032x}", rand::rng().random::<u128>())
}

async fn make(api: &Api, subjects: &Subjects, config: &NatsConfig) -> Result<Info, ApiError> {
    let mut wanted = Config {
        name: subjects.stream(),
        max_consumers: -1,
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        ..Config::default()
    };
    prescribe(&mut wanted, subjects, config);
    let made = api.create(&wanted).await?;
    tracing::info!(
        stream = wanted.name,
        replicas = config.replicas,
        "stream of the log created"
    );
    Ok(made)
}

/// Brings what may be changed up to date.
async fn adopt(
    api: &Api,
    found: Info,
    subjects: &Subjects,
    config: &NatsConfig,
) -> Result<Info, BusError> {
    if found.config.storage != StorageType::File
        || found.config.retention != RetentionPolicy::Limits
    {
        let message = format!(
            "stream {} was not made by Anteroom (it must be on file, with retention by limits): \
             delete it, and the watcher creates it again",
            found.config.name
        );
        return Err(BusError::Refused { message });
    }
    let mut wanted = found.config.clone();
    prescribe(&mut wanted, subjects, config);
    if wanted == found.config {
        return Ok(found);
    }
    tracing::info!(stream = wanted.name, "stream of the log configured anew");
    Ok(api.update(&wanted).await?)
}

/// Sets the fields of the stream that this crate decides and that may change during the stream's life.
fn prescribe(stream: &mut Config, subjects: &Subjects, config: &NatsConfig) {
    stream.subjects = subjects.stream_subjects();
    stream.max_bytes = config.log_bytes_max.try_into().unwrap_or(i64::MAX);
    stream.max_messages = -1;
    stream.max_messages_per_subject = 1;
    // An object that does not change for long is as true as any other.
    stream.max_age = Duration::ZERO;
    stream.max_message_size = MESSAGE_BYTES_MAX.try_into().unwrap_or(i32::MAX);
    // `Old` would silently evict the objects that have not changed for longest.
    stream.discard = DiscardPolicy::New;
    // An object's next record replaces its last one.
    stream.discard_new_per_subject = false;
    stream.num_replicas = config.replicas;
    stream.allow_direct = true;
    stream.allow_message_ttl = true;
    stream.allow_atomic_publish = true;
    let metadata = &mut stream.metadata;
    metadata
        .entry(INCARNATION.to_owned())
        .or_insert_with(new_incarnation);
    metadata.insert("anteroom.protocol".to_owned(), PROTOCOL_VERSION.to_string());
}

/// Returns the faults of the stream and of its copies.
pub(super) fn faults(info: &Info, subjects: &Subjects, config: &NatsConfig) -> LogFaults {
    LogFaults {
        settings: differences(&info.config, subjects, config),
        copies: missing_copies(info.config.num_replicas, info.cluster.as_ref()),
    }
}

/// Returns the settings of the stream that somebody changed, by the names that NATS has for them.
fn differences(found: &Config, subjects: &Subjects, config: &NatsConfig) -> Vec<String> {
    let mut wanted = found.clone();
    prescribe(&mut wanted, subjects, config);
    let limits = [
        ("max_msgs", found.max_messages > 0),
        ("max_consumers", found.max_consumers > 0),
        ("max_age", !found.max_age.is_zero()),
    ];
    let limits = limits.into_iter().filter(|(_, is_limited)| *is_limited);
    let limits = limits.map(|(name, _)| format!("{name} is limited, and should not be"));
    let others = [
        differs("subjects", &found.subjects, &wanted.subjects),
        differs("storage", &found.storage, &StorageType::File),
        differs("retention", &found.retention, &RetentionPolicy::Limits),
        differs("num_replicas", &found.num_replicas, &wanted.num_replicas),
        differs("max_bytes", &found.max_bytes, &wanted.max_bytes),
        differs(
            "max_msgs_per_subject",
            &found.max_messages_per_subject,
            &wanted.max_messages_per_subject,
        ),
        differs(
            "max_msg_size",
            &found.max_message_size,
            &wanted.max_message_size,
        ),
        differs("discard", &found.discard, &wanted.discard),
        differs(
            "discard_new_per_subject",
            &found.discard_new_per_subject,
            &false,
        ),
        differs("allow_direct", &found.allow_direct, &true),
        differs("allow_msg_ttl", &found.allow_message_ttl, &true),
        differs("allow_atomic", &found.allow_atomic_publish, &true),
        differs("deny_purge", &found.deny_purge, &false),
        differs("sealed", &found.sealed, &false),
    ];
    others.into_iter().flatten().chain(limits).collect()
}

fn differs<T: Debug + PartialEq>(name: &str, found: &T, wanted: &T) -> Option<String> {
    (found != wanted).then(|| format!("{name} is {found:?}, and should be {wanted:?}"))
}

/// Returns the copies of the stream that are missing or out of date, where there should be `copies`.
fn missing_copies(copies: usize, cluster: Option<&ClusterInfo>) -> Vec<String> {
    // The leader has a copy too.
    let others = cluster.map_or(&[][..], |cluster| cluster.replicas.as_slice());
    let is_missing =
        |peer: &&PeerInfo| peer.offline || !peer.current && peer.active > COPY_SILENCE_MAX;
    let missing = others.iter().filter(is_missing).map(|peer| {
        let silent_seconds = peer.active.as_secs();
        format!(
            "the copy of server {} is missing: the server was heard {silent_seconds} s ago",
            peer.name
        )
    });
    let kept = others.len() + 1;
    let too_few = (kept < copies).then(|| format!("{kept} of {copies} servers have a copy"));
    missing.chain(too_few).collect()
}

/// Refuses a server without the features that the log needs. Such a server leaves an unknown
/// setting out of its answer, without an error.
fn require_features(stream: &Config) -> Result<(), BusError> {
    if stream.allow_atomic_publish && stream.allow_message_ttl {
        return Ok(());
    }
    Err(BusError::Refused {
        message: format!(
            "nats-server lacks atomic batches or message TTLs: version {SERVER_VERSION_MIN} \
             or newer is needed"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adopted_stream_keeps_its_incarnation_and_foreign_metadata() {
        let subjects = Subjects::new("c1").unwrap();
        let config = NatsConfig::new(["nats://nats"], "c1");
        let mut stream = Config {
            description: Some("an operator's own words".into()),
            ..Config::default()
        };
        prescribe(&mut stream, &subjects, &config);
        let incarnation = stream.metadata[INCARNATION].clone();
        assert_eq!(incarnation.len(), 32);
        let before = stream.clone();
        prescribe(&mut stream, &subjects, &config);
        assert_eq!(stream, before, "no drift, no update");
        stream.metadata.insert("theirs".into(), "kept".into());
        stream.discard = DiscardPolicy::Old;
        prescribe(&mut stream, &subjects, &config);
        assert_eq!(stream.discard, DiscardPolicy::New);
        assert_eq!(stream.metadata[INCARNATION], incarnation);
        assert_eq!(stream.metadata["theirs"], "kept");
        assert_eq!(stream.description, before.description);
    }

    #[test]
    fn settings_that_somebody_changed_are_faults() {
        let subjects = Subjects::new("c1").unwrap();
        let config = NatsConfig::new(["nats://nats"], "c1");
        let mut stream = Config {
            max_consumers: -1,
            ..Config::default()
        };
        prescribe(&mut stream, &subjects, &config);
        let found = |change: fn(&mut Config)| {
            let mut changed = stream.clone();
            change(&mut changed);
            differences(&changed, &subjects, &config)
        };
        assert_eq!(found(|_| ()), [""; 0]);
        type Change = fn(&mut Config);
        let cases: &[(Change, &str)] = &[
            (
                |of| of.num_replicas = 3,
                "num_replicas is 3, and should be 1",
            ),
            (|of| of.max_bytes = 5, "max_bytes is 5, and should be 2"),
            (
                |of| of.retention = RetentionPolicy::Interest,
                "retention is Interest, and should be Limits",
            ),
            (
                |of| of.discard = DiscardPolicy::Old,
                "discard is Old, and should be New",
            ),
            (
                |of| of.max_age = Duration::from_secs(60),
                "max_age is limited, and should not be",
            ),
            (
                |of| of.max_messages = 7,
                "max_msgs is limited, and should not be",
            ),
            (|of| of.subjects.clear(), "subjects is [], and should be"),
            (
                |of| of.deny_purge = true,
                "deny_purge is true, and should be false",
            ),
        ];
        for (change, expected) in cases {
            let found = found(*change);
            assert!(
                found.len() == 1 && found[0].starts_with(expected),
                "{expected}: {found:?}"
            );
        }
    }

    #[test]
    fn copies_of_servers_that_are_away_are_faults() {
        let peer = |name: &str, current, offline, silent_seconds| PeerInfo {
            name: name.to_owned(),
            current,
            offline,
            active: Duration::from_secs(silent_seconds),
            lag: None,
        };
        let missing = |replicas| {
            let cluster = ClusterInfo {
                replicas,
                ..ClusterInfo::default()
            };
            missing_copies(3, Some(&cluster))
        };
        assert_eq!(missing_copies(1, None), [""; 0]);
        let busy = peer("b", false, false, 1);
        assert_eq!(missing(vec![peer("a", true, false, 0), busy]), [""; 0]);
        let away = "the copy of server b is missing: the server was heard 12 s ago";
        for gone in [peer("b", false, false, 12), peer("b", true, true, 12)] {
            assert_eq!(missing(vec![peer("a", true, false, 0), gone]), [away]);
        }
        let one = missing(vec![peer("a", true, false, 0)]);
        assert_eq!(one, ["2 of 3 servers have a copy"]);
    }

    #[test]
    fn an_old_server_is_refused_with_the_version_it_needs() {
        let error = require_features(&Config::default()).unwrap_err();
        assert!(error.to_string().contains(SERVER_VERSION_MIN));
    }
}
