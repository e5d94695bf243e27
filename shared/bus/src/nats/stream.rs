//! The JetStream stream of the log: its creation and its configuration.

use anteroom_model::{Incarnation, limits::MESSAGE_BYTES_MAX};
use anteroom_wire::{PROTOCOL_VERSION, subject::Subjects};
use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, RetentionPolicy, StorageType};
use rand::Rng;

use super::{
    NatsConfig,
    api::{self, Api, ApiError, INCARNATION, code},
};
use crate::{BusError, LogHead};

/// The oldest server whose atomic batches keep their fence (nats-server issue 8376).
pub(super) const SERVER_VERSION_MIN: &str = "2.14.5";

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
        max_messages: -1,
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
    stream.max_messages_per_subject = 1;
    stream.max_message_size = MESSAGE_BYTES_MAX.try_into().unwrap_or(i32::MAX);
    // `Old` would silently evict the objects that have not changed for longest.
    stream.discard = DiscardPolicy::New;
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
    fn an_old_server_is_refused_with_the_version_it_needs() {
        let error = require_features(&Config::default()).unwrap_err();
        assert!(error.to_string().contains(SERVER_VERSION_MIN));
    }
}
