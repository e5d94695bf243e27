//! Finding out which webhooks of single policies the API server does not take, after it has refused all: one that
//! it does not take keeps no other from being called.
//!
//! A few are tried in one step, and then the configuration is written again, as it is wanted by then: policies that
//! change meanwhile do not wait for the rest. What was tried is remembered, so each is tried once.

use futures::StreamExt as _;
use kube::Client;
use tokio::time::Instant;

use super::{
    Configuration,
    refused::Refusals,
    write::{Unwritten, try_one},
};

/// Webhooks of one step.
const TRIES_MAX: usize = 16;

/// Those of them that are tried at once.
const TRIES_AT_ONCE: usize = 8;

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sifted {
    /// Some were tried; whether they were the last.
    Tried { is_over: bool },
    /// There is nothing left to try: it is none of them.
    Nothing,
}

/// Tries the next few.
pub(super) async fn step(
    (client, configuration): (&Client, &Configuration),
    refusals: &mut Refusals,
) -> Sifted {
    let apart = &configuration.apart;
    if refusals.suspects(apart).next().is_none() && (apart.is_empty() || !refusals.doubt()) {
        return Sifted::Nothing;
    }
    let suspects: Vec<_> = refusals.suspects(apart).take(TRIES_MAX).cloned().collect();
    let tries = suspects.into_iter().map(|of| async move {
        let outcome = try_one(client, configuration, &of.1).await;
        (of, outcome)
    });
    let mut tries = futures::stream::iter(tries).buffer_unordered(TRIES_AT_ONCE);
    let mut is_known = false;
    while let Some((of, outcome)) = tries.next().await {
        match outcome {
            Ok(()) => refusals.taken_alone(&of),
            Err(Unwritten::Invalid(words)) => {
                // What stands before names the configuration, which is none of the author's.
                let words = words
                    .split_once(" is invalid: ")
                    .map_or(&*words, |(_, w)| w);
                tracing::warn!(policy = %of.0, words, "the API server does not take the policy's webhook");
                refusals.refused(&of, words, (rand::random(), Instant::now()));
            }
            // It did not say: it is tried again.
            Err(_) => continue,
        }
        is_known = true;
    }
    match is_known {
        true => Sifted::Tried {
            is_over: refusals.suspects(apart).next().is_none(),
        },
        // Later, when the API server answers.
        false => Sifted::Nothing,
    }
}
