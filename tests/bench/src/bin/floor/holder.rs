//! Holds the keys that are taken in a set, and answers questions by one look-up for each key.

use std::{collections::HashSet, fs, path::Path};

use anyhow::Context;
use async_nats::Client;
use futures::StreamExt;

use crate::{QUEUE, SUBJECT};

/// Answers until the connection to NATS ends.
pub(crate) async fn run(client: &Client, file: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(file)
        .with_context(|| format!("cannot read the keys {}", file.display()))?;
    let taken: HashSet<&str> = text.lines().collect();
    let mut questions = client.queue_subscribe(SUBJECT, QUEUE.to_owned()).await?;
    while let Some(question) = questions.next().await {
        let Some(reply) = question.reply else {
            continue;
        };
        let keys = std::str::from_utf8(&question.payload).context("a question is no text")?;
        let found = first_taken(&taken, keys).unwrap_or_default();
        let answer = question.payload.slice_ref(found.as_bytes());
        client.publish(reply, answer).await?;
    }
    Ok(())
}

/// Returns the first key that is taken, of keys in one line each.
pub(crate) fn first_taken<'k>(taken: &HashSet<&str>, keys: &'k str) -> Option<&'k str> {
    keys.lines().find(|key| taken.contains(*key))
}
