//! The policies that the log has when a term begins: those that were in force before this watcher led.

use std::collections::HashMap;

use anteroom_bus::{Bus, LogEvent, LogScope};
use anteroom_model::{Delta, ObjectKey, Op, ViewState, system};
use anteroom_wire::envelope::Record;
use bytes::Bytes;

/// Manifests of policies as the log has them.
pub(super) type PoliciesInLog = HashMap<ObjectKey, Bytes>;

/// Reads the policies. Call this only after the lease was taken: no other watcher writes them then.
pub(super) async fn read(bus: &dyn Bus) -> PoliciesInLog {
    let mut follower = bus.follow(LogScope::Views(vec![system::policies()]));
    let mut policies = PoliciesInLog::new();
    while let Some(event) = follower.next().await {
        match event {
            LogEvent::Restart { .. } => policies.clear(),
            LogEvent::CaughtUp { .. } => return policies,
            LogEvent::Record {
                envelope: Ok(envelope),
                ..
            } => take_in(&mut policies, envelope.record),
            // What cannot be read was not in force.
            LogEvent::Record { .. } | LogEvent::Superseded { .. } | LogEvent::Away { .. } => {}
        }
    }
    std::future::pending().await // The bus was closed: the process ends.
}

fn take_in(policies: &mut PoliciesInLog, record: Record) {
    match record {
        Record::Delta { delta, .. } => {
            let Delta { key, op, .. } = delta;
            match op {
                Op::Put(body) => policies.insert(key, body),
                Op::Delete => policies.remove(&key),
            };
        }
        Record::Control(record) if record.state == ViewState::Dropped => policies.clear(),
        Record::Control(_) => {}
    }
}
