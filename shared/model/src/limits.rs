//! The limits of the system, by name: sizes in bytes, times in milliseconds. What happens at a limit
//! stands beside it.

/// The largest message on the bus, headers included. The API server refuses objects above about
/// 1.5 MiB, so no object needs more; a query's result above it is an error.
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The longest name that keys hold unchanged. Longer names are replaced by their beginning and a hash.
pub const NAME_BYTES_MAX: usize = 512;

/// The largest body of an object. A larger object is a stub in the log, and queries that could see the object are
/// errors.
pub const OBJECT_BYTES_MAX: usize = 3 * 1024 * 1024;

/// The largest result of one query, below [`MESSAGE_BYTES_MAX`] by what the envelope takes.
pub const RESULT_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 64 * 1024;

/// The most memory of a result once it is read, as of an answer of a live read: some 36 times [`RESULT_BYTES_MAX`]. Results
/// of usual objects take 10 to 25 times their bytes. A larger one is an error.
pub const RESULT_MEMORY_BYTES_MAX: usize = 144 * 1024 * 1024;

/// The most memory of the values in a request for queries once it is read: of their parameters. More is an error.
pub const REQUEST_MEMORY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The longest expression that is parsed.
pub const EXPRESSION_BYTES_MAX: usize = 64 * 1024;

/// The deepest nesting that a decoder of objects follows. The API server's own limit for JSON is
/// 10,000 for reading; real objects stay under 100. Of a deeper one the log has a stub. (`functions::json` has the same limit.)
pub const OBJECT_DEPTH_MAX: usize = 512;

/// The largest AdmissionReview: object and old object of 1.5 MiB each, and the envelope. A larger
/// one is refused, whatever the failure policy.
pub const REVIEW_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Queries in one request. More is an error.
pub const QUERIES_PER_REQUEST_MAX: usize = 64;

/// Documents of a view that one expression of CEL is about, beside the first.
pub const CEL_DOCUMENTS_MAX: usize = 8;

/// Deltas in one atomic batch.
pub const BATCH_MESSAGES_MAX: usize = 256;

/// The most bytes of bodies in an atomic batch. A batch with a single object may have more.
pub const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The time for which a tombstone stays in the log. A reader that was away for longer than half of it re-reads
/// everything by mark and sweep.
pub const TOMBSTONE_TTL_MS: u64 = 60 * 60 * 1000;

/// The interval of the writer's heartbeats, which say how old its news is.
pub const BEAT_INTERVAL_MS: u64 = 500;

/// Views in one message of a heartbeat. More are sent in pages, each of which means something without the others.
pub const BEAT_VIEWS_MAX: usize = 500;

/// Without a beat for this long, a writer counts as silent, which errors and readiness tell. A standby writer takes over
/// after half of it; its writes are fenced, so that too early is harmless.
pub const BEAT_SILENCE_MAX_MS: u64 = 5_000;

/// For this long after a machine was suspended, beats and events that arrive there are no news: they may have been sent
/// before. So it is with beats that arrive at a process that was stopped. It is twice the interval of beats.
pub const SUSPEND_SETTLE_MS: u64 = 1_000;

/// The distance by which a beat may run ahead of what a reader has applied before the reader re-reads.
pub const LAG_MAX_MS: u64 = 2_000;

/// The age at which a view stops answering where neither its source nor the reader names one. A
/// healthy watch brings an event, a bookmark or its own end before that, with seconds to spare.
pub const AGE_MAX_DEFAULT_MS: u64 = 60_000;

/// The interval of a replica's heartbeats.
pub const REPLICA_BEAT_INTERVAL_MS: u64 = 1_000;

/// Without a beat for this long, a replica is no longer counted on.
pub const REPLICA_SILENCE_MAX_MS: u64 = 5_000;

/// The interval of a webhook's heartbeats.
pub const WEBHOOK_BEAT_INTERVAL_MS: u64 = 1_000;

/// Without a beat for this long, a webhook is no longer waited for: a policy may become ready without
/// it.
pub const WEBHOOK_SILENCE_MAX_MS: u64 = 5_000;

/// After this long without a beat of any webhook, ready policies become not ready: no webhook enforces
/// them. Long enough for the only webhook to be started again.
pub const WEBHOOKS_AWAY_MAX_MS: u64 = 30_000;

/// The time that a reader waits for the first news of an object that is referenced by itself.
pub const REFERENCE_WAIT_MAX_MS: u64 = 1_000;
